// The desk: one page that never reloads between items. No key decides by itself: it opens a form, which is then sent.
// Nothing is kept: what was shown goes with the item, and what was revealed goes with its minute.
(() => {
  const desk = document.getElementById("desk"), rows = document.getElementById("rows"), pane = document.getElementById("pane");
  const aside = document.getElementById("consequences"), acts = document.getElementById("acts");
  const told = document.getElementById("told"), spoken = document.getElementById("spoken");
  const base = desk.dataset.base, token = document.querySelector("#token input").value;
  const words = Object.fromEntries([...document.querySelectorAll("#words [data-word]")].map((each) => [each.dataset.word, each.textContent]));
  const previews = new Map();
  let single = desk.dataset.single === "on", open = null, busy = false, prefix = "", minute = null, renewing = null, turn = 0;

  const tell = (text) => { told.textContent = text; told.classList.add("up"); clearTimeout(tell.timer); tell.timer = setTimeout(() => told.classList.remove("up"), 6000); };
  const why = (name) => { spoken.textContent = ""; requestAnimationFrame(() => { spoken.textContent = words[name] ?? name; }); tell(words[name] ?? name); };

  async function ask(path, data) {
    const sent = { headers: { "X-CSRFToken": token, Accept: "application/json" }, credentials: "same-origin" };
    if (data !== undefined) { sent.method = "POST"; sent.body = new URLSearchParams(data); }
    let answer;
    try { answer = await fetch(path.startsWith("/") ? path : base + path, sent); } catch { return { problem: words["no-connection"], code: "no_connection" }; }
    const type = answer.headers.get("Content-Type") ?? "";
    if (!type.startsWith("application/json")) return { problem: answer.redirected ? words["signed-out"] : words["no-connection"], code: "no_answer" };
    return answer.json();
  }

  // the queue ---------------------------------------------------------------------------------------------------------
  const lines = () => [...rows.querySelectorAll("[role=option]")];
  const line = (id) => document.getElementById(`row-${id}`);
  const current = () => rows.querySelector(".here");
  const selected = () => lines().filter((each) => each.dataset.picked === "yes");

  function point(row) {
    current()?.classList.remove("here");
    for (const each of lines()) each.setAttribute("aria-selected", String(each === row || each.dataset.picked === "yes"));
    if (!row) { rows.removeAttribute("aria-activedescendant"); return; }
    row.classList.add("here");
    rows.setAttribute("aria-activedescendant", row.id);
    row.scrollIntoView({ block: "nearest" });
  }

  function pick(row, picked = row?.dataset.picked !== "yes") {
    if (!row) return;
    row.dataset.picked = picked ? "yes" : "no";
    row.setAttribute("aria-selected", String(picked || row.classList.contains("here")));
    document.dispatchEvent(new CustomEvent("desk:picked", { detail: selected().map((each) => each.dataset.item) }));
  }

  async function preview(id) {
    if (!previews.has(id)) previews.set(id, ask(`${id}/`));
    return previews.get(id);
  }

  async function step(way, extend = false) {
    const all = lines(), at = all.indexOf(current());
    const next = all[at < 0 ? (way > 0 ? 0 : all.length - 1) : at + way];
    if (!next) { why(way > 0 ? "last" : "first"); if (way > 0) more(); return; }
    if (extend) { pick(all[at], true); pick(next, true); }
    await look(next);
  }

  async function look(row) {
    point(row);
    const mine = ++turn, found = await preview(row.dataset.item);
    if (mine !== turn) return;
    if (found.problem) { previews.delete(row.dataset.item); tell(found.problem); if (found.code === "already_decided") row.remove(); return; }
    show(found);
    ahead(row);
  }

  function ahead(row) {
    // Metadata only: what the next is about is sent once it is claimed.
    const next = row?.nextElementSibling;
    if (next?.dataset.item) preview(next.dataset.item);
  }

  async function more() {
    const button = document.getElementById("more");
    if (button.hidden || busy) return;
    const found = await ask(`rows/?after=${encodeURIComponent(button.dataset.after)}`);
    if (found.problem) { tell(found.problem); return; }
    rows.insertAdjacentHTML("beforeend", found.rows);
    button.dataset.after = found.more;
    button.hidden = !found.more;
  }

  // an item -----------------------------------------------------------------------------------------------------------
  function show(found) {
    clearInterval(minute);
    open = found.item ? found : null;
    pane.dataset.item = found.item ?? "";
    pane.innerHTML = found.pane;
    aside.innerHTML = found.consequences ?? "";
    acts.innerHTML = found.acts ?? "";
    pane.scrollTop = 0;
    desk.classList.toggle("claimed", Boolean(found.claimed));
    if (found.claimed) {
      clearInterval(renewing);
      const id = found.item;
      renewing = setInterval(() => ask(`${id}/renew/`, {}).then((answer) => { if (answer.problem && open?.item === id) why("lapsed"); }), 5 * 60 * 1000);
    }
    if (found.seconds) mask(found);
    const row = found.item && line(found.item);
    if (row) point(row);
  }

  function mask(found) {
    const ends = performance.now() + found.seconds * 1000;
    const hide = () => { clearInterval(minute); if (open?.item === found.item && open.seconds) { const form = opened(); if (!form) { claim(found.item, true); why("masked-again"); } } };
    minute = setInterval(() => {
      const left = Math.ceil((ends - performance.now()) / 1000), shown = document.getElementById("seconds");
      if (shown) shown.textContent = String(Math.max(left, 0));
      if (left <= 0) { veil(); hide(); }
    }, 1000);
  }

  function veil() {
    // At once, whatever the server says next.
    for (const each of document.querySelectorAll(".clear")) each.replaceWith(Object.assign(document.createElement("span"), { className: "masked", textContent: words.masked }));
  }

  async function claim(id, again = false) {
    if (busy) return;
    busy = true;
    const data = {};
    if (id) data.item = id;
    if (open?.claimed && !again) data.previous = open.item;
    const before = open?.item, found = await ask("claim/", data);
    busy = false;
    turn++;
    if (found.problem) { previews.delete(id); why(found.problem); if (found.code === "already_decided") { line(id)?.remove(); } return; }
    if (found.empty) { open = null; clearInterval(renewing); show(found); point(null); return; }
    if (found.carried) undone();
    show(found);
    mark(found.item);
    if (before && before !== found.item) unmark(before);
    if (!again) { pane.focus({ preventScroll: true }); spoken.textContent = `${words.claimed}: ${pane.querySelector("h1")?.textContent ?? ""}`; }
    ahead(line(found.item));
  }

  function mark(id) { const said = line(id)?.querySelector(".said"); if (said && !said.textContent.includes(words.mine)) said.append(` · ${words.mine}`); }
  function unmark(id) { const said = line(id)?.querySelector(".said"); if (said) said.textContent = said.textContent.replace(` · ${words.mine}`, ""); }

  async function release() {
    if (!open?.claimed) return;
    const id = open.item;
    await ask(`${id}/release/`, {});
    unmark(id);
    previews.delete(id);
    const found = await preview(id);
    if (!found.problem) show(found);
  }

  // forms -------------------------------------------------------------------------------------------------------------
  const opened = () => pane.querySelector("form.act:not([hidden])");

  // What a key does is what its button says: each queue has acts of its own.
  const keyed = (key, name) => offer(document.querySelector(`button[data-do="act"][data-key="${key}"]`)?.dataset.act ?? name);

  function offer(name) {
    if (!open) return why("no-item");
    if (open.barred) return why(open.barred);
    if (!open.claimed) return why("claim-first");
    const form = pane.querySelector(`form.act[data-act="${name}"]`);
    if (!form) return why("no-such-act");
    if (open.reveal && !open.clear && ["confirm", "edit"].includes(name)) return why("reveal-first");
    if (opened() === form) { if (name === "confirm") send(form); return; }
    close();
    form.hidden = false;
    if (form.elements.shown) { if (matchMedia("(min-width: 1101px)").matches) aside.prepend(form.querySelector(".foreseen")); scoped(form); }
    form.querySelector("textarea, input[name=case], input[name=scope]:checked, input[name=reason]:checked, input[name=reason]")?.focus();
    form.scrollIntoView({ block: "nearest" });
  }

  function close() {
    const form = opened();
    if (!form) return false;
    form.hidden = true;
    if (form.elements.shown) { const place = foreseen_of(form); place.textContent = ""; form.elements.shown.before(place); }
    unmark_words();
    pane.focus({ preventScroll: true });
    return true;
  }

  async function send(form) {
    if (busy || !form.reportValidity()) return;
    if (form.elements.shown && !form.elements.shown.value) { await foresee(form); if (!form.elements.shown.value) return; if (form.elements.scope.value === "words") { why("look"); return; } }
    const name = form.dataset.act, id = open.item, data = Object.fromEntries(new FormData(form));
    busy = true;
    for (const each of form.querySelectorAll("button")) each.disabled = true;
    const path = name === "reveal" ? `${id}/reveal/` : `${id}/decide/`;
    const found = await ask(path, name === "reveal" ? data : { ...data, act: name, digest: open.digest, later: "1" });
    busy = false;
    for (const each of form.querySelectorAll("button")) each.disabled = false;
    if (found.problem) {
      if (found.code === "show_who_you_are") { location.assign(`${base}${id}/again/`); return; }
      const place = form.querySelector(".problem");
      place.textContent = [found.problem, ...(found.errors ?? [])].join(" ");
      place.hidden = false;
      why(found.problem);
      previews.delete(id);
      // As it is now, under the same claim: the next decision is on that.
      if (found.code === "changed_since") await claim(id, true);
      if (["claim_lapsed", "already_decided"].includes(found.code)) { open = null; await claim(); }
      return;
    }
    if (found.earlier) why(found.earlier);
    if (found.stays) { tell(found.told); if (found.undo) offer_undo(id, found); previews.delete(id); claim(id, true); return; }
    if (name === "reveal") { show(found); spoken.textContent = pane.querySelector(".revealed")?.textContent ?? ""; return; }
    after(id, found);
  }

  // words that are marked ---------------------------------------------------------------------------------------------
  // Places are counted in characters of the text as it is stored: what stands for others says how many it covers.
  const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]/gu;
  let anchor = null, drawing = null;
  const texts = () => [...pane.querySelectorAll("pre[data-marks]")];
  const words_of = (text) => [...text.querySelectorAll(".word")];
  const marked_words = () => [...pane.querySelectorAll(".word[aria-selected=true]")];

  function cut(text) {
    if (text.dataset.cut) return;
    text.dataset.cut = "yes";
    let at = 0, number = 0;
    const name = (element, from, to) => { element.classList.add("word"); element.id = `word-${text.dataset.marks}-${number++}`; element.dataset.from = from; element.dataset.to = to; element.setAttribute("role", "option"); element.setAttribute("aria-selected", "false"); };
    const walk = (node) => {
      if (node.nodeType === Node.ELEMENT_NODE) {
        if (node.dataset.covers === undefined) { node.setAttribute("role", "presentation"); [...node.childNodes].forEach(walk); return; }
        const covers = Number(node.dataset.covers);
        if (!node.classList.contains("left-out")) name(node, at, at + covers);
        at += covers;
        return;
      }
      const parts = document.createDocumentFragment(), said = node.data;
      let done = 0;
      for (const found of said.matchAll(WORD)) {
        const between = said.slice(done, found.index);
        parts.append(between);
        at += [...between].length;
        const length = [...found[0]].length, word = document.createElement("span");
        word.textContent = found[0];
        name(word, at, at + length);
        parts.append(word);
        at += length;
        done = found.index + found[0].length;
      }
      const rest = said.slice(done);
      parts.append(rest);
      at += [...rest].length;
      node.replaceWith(parts);
    };
    [...text.childNodes].forEach(walk);
  }

  function scoped(form) {
    const by_words = form.elements.scope.value === "words", marking = form.querySelector(".marking");
    marking.hidden = !by_words;
    for (const text of texts()) {
      if (by_words) cut(text);
      text.classList.toggle("marks", by_words);
      if (by_words) { text.setAttribute("role", "listbox"); text.setAttribute("aria-multiselectable", "true"); } else text.removeAttribute("role");
    }
    if (!by_words) unmark_words(true);
    changed(form);
  }

  function to_text() {
    const form = opened(), by_words = form?.querySelector("input[name=scope][value=words]");
    if (!by_words) return why("no-such-act");
    if (!by_words.checked) { by_words.checked = true; scoped(form); }
    const text = texts()[0];
    text?.focus({ preventScroll: true });
    text?.scrollIntoView({ block: "center" });
  }

  function unmark_words(keep = false) {
    for (const word of pane.querySelectorAll(".word")) { word.setAttribute("aria-selected", "false"); word.classList.remove("at"); }
    anchor = null;
    if (!keep) for (const text of texts()) { text.classList.remove("marks"); text.removeAttribute("role"); text.removeAttribute("aria-activedescendant"); }
  }

  function go(text, word, extend) {
    if (!word) return;
    text.querySelector(".word.at")?.classList.remove("at");
    word.classList.add("at");
    text.setAttribute("aria-activedescendant", word.id);
    word.scrollIntoView({ block: "nearest" });
    if (!extend) { anchor = word; return; }
    span(text, anchor ?? word, word);
  }

  function span(text, from, to) {
    const all = words_of(text), a = all.indexOf(from), b = all.indexOf(to);
    // What the run covered before it was drawn shorter again is let go.
    for (const each of all) if (each.dataset.drawn) { each.setAttribute("aria-selected", "false"); delete each.dataset.drawn; }
    for (const each of all.slice(Math.min(a, b), Math.max(a, b) + 1)) { if (each.getAttribute("aria-selected") !== "true") each.dataset.drawn = "yes"; each.setAttribute("aria-selected", "true"); }
    changed(opened());
  }

  function settle_run() { for (const each of pane.querySelectorAll(".word[data-drawn]")) delete each.dataset.drawn; }

  function flip(word) {
    settle_run();
    word.setAttribute("aria-selected", String(word.getAttribute("aria-selected") !== "true"));
    anchor = word;
    changed(opened());
  }

  // Words side by side are one place, with what stands between them.
  function places() {
    const found = [];
    for (const text of texts()) {
      let last = null;
      for (const word of words_of(text)) {
        if (word.getAttribute("aria-selected") !== "true") { last = null; continue; }
        if (last) last.to = word.dataset.to; else { last = { episode: text.dataset.marks, from: word.dataset.from, to: word.dataset.to }; found.push(last); }
      }
    }
    return found.map((each) => `${each.episode}:${each.from}-${each.to}`);
  }

  // What follows stands beside the item, with what else follows; on a narrow page in the form.
  const foreseen_of = (form) => form.querySelector(".foreseen") ?? aside.querySelector(".foreseen");

  function changed(form) {
    if (!form?.elements.shown) return;
    form.elements.shown.value = "";
    foreseen_of(form).textContent = "";
    const number = marked_words().length, said = form.querySelector("output.marked");
    if (form.elements.marked) form.elements.marked.value = form.elements.scope.value === "words" ? places().join(" ") : "";
    if (said) { said.dataset.none ??= said.textContent; said.textContent = number ? `${number} ${number === 1 ? said.dataset.one : said.dataset.more}` : said.dataset.none; }
    clearTimeout(changed.timer);
    if (form.elements.scope.value !== "words" || number) changed.timer = setTimeout(() => foresee(form), 350);
  }

  async function foresee(form) {
    clearTimeout(changed.timer);
    if (form.hidden || !open) return;
    const mine = (foresee.turn = (foresee.turn ?? 0) + 1), place = foreseen_of(form);
    const data = Object.fromEntries(new FormData(form));
    const found = await ask(`${open.item}/foresee/`, data);
    if (mine !== foresee.turn) return;
    if (found.problem) { place.textContent = found.problem; why(found.problem); return; }
    place.innerHTML = found.foreseen;
    form.elements.shown.value = found.shown;
  }

  pane.addEventListener("change", (event) => {
    const form = event.target.closest("form.act");
    if (!form?.elements.shown) return;
    if (event.target.name === "scope") { scoped(form); if (event.target.value === "words" && form.elements.scope.value === "words") texts()[0]?.scrollIntoView({ block: "nearest" }); }
    if (event.target.name === "strategy") changed(form);
  });
  pane.addEventListener("focusin", (event) => {
    if (event.target.matches("pre.marks") && !event.target.querySelector(".word.at")) go(event.target, event.target.querySelector("mark .word") ?? event.target.querySelector(".word"), false);
  });
  pane.addEventListener("keydown", (event) => {
    const text = event.target;
    if (!text.matches("pre.marks") || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = words_of(text), at = all.indexOf(text.querySelector(".word.at"));
    // Up and down lead to the word that stands nearest above or below.
    const level = (way) => {
      const box = all[at]?.getBoundingClientRect();
      if (!box) return all[0];
      const beyond = all.filter((each) => way * (each.getBoundingClientRect().top - box.top) > box.height / 2);
      const line_at = way > 0 ? beyond[0] : beyond.at(-1);
      if (!line_at) return all[at];
      const top = line_at.getBoundingClientRect().top;
      return beyond.filter((each) => Math.abs(each.getBoundingClientRect().top - top) < box.height / 2).reduce((best, each) => (Math.abs(each.getBoundingClientRect().left - box.left) < Math.abs(best.getBoundingClientRect().left - box.left) ? each : best));
    };
    const next = { ArrowRight: () => all[Math.min(at + 1, all.length - 1)], ArrowLeft: () => all[Math.max(at - 1, 0)], ArrowDown: () => level(1), ArrowUp: () => level(-1), Home: () => all[0], End: () => all.at(-1) }[event.key];
    if (next) { event.preventDefault(); event.stopPropagation(); if (!event.shiftKey) settle_run(); go(text, next(), event.shiftKey); return; }
    if (event.key === " ") { event.preventDefault(); event.stopPropagation(); if (all[at]) flip(all[at]); return; }
    if (event.key === "Enter") { event.preventDefault(); event.stopPropagation(); opened()?.querySelector("input[name=reason]")?.focus(); }
  });
  pane.addEventListener("pointerdown", (event) => {
    const word = event.target.closest("pre.marks .word");
    if (!word || event.button) return;
    settle_run();
    drawing = { text: word.closest("pre"), from: word, moved: false };
  });
  pane.addEventListener("pointerover", (event) => {
    const word = event.target.closest("pre.marks .word");
    if (!drawing || !word || word.closest("pre") !== drawing.text || (word === drawing.from && !drawing.moved)) return;
    drawing.moved = true;
    getSelection()?.removeAllRanges();
    span(drawing.text, drawing.from, word);
  });
  document.addEventListener("pointerup", (event) => {
    if (!drawing) return;
    const { text, from, moved } = drawing;
    drawing = null;
    go(text, from, false);
    if (!moved && event.target.closest?.(".word") === from) flip(from);
    settle_run();
  });

  function after(id, found) {
    previews.delete(id);
    const row = line(id), next = row?.nextElementSibling;
    row?.remove();
    if (found.progress) document.getElementById("progress").innerHTML = found.progress;
    count(-1);
    if (found.undo) offer_undo(id, found, row, next); else { undone(); tell(found.told); }
    open = null;
    clearInterval(minute);
    claim(next?.dataset.item && !/claimed by a colleague|more was asked/.test(next.textContent) ? next.dataset.item : undefined).then(() => { if (!open && lines().length) claim(); });
    if (lines().length < 10) more();
  }

  // taking back ---------------------------------------------------------------------------------------------------------
  const undo = document.getElementById("undo");
  let undoing = null;

  function offer_undo(id, found, row = null, next = null) {
    undone();
    undoing = { id, proposal: found.undo.proposal, row, next, ends: performance.now() + found.undo.seconds * 1000 };
    undo.querySelector(".what").textContent = found.told;
    told.textContent = `${found.told} ${words["can-undo"]}`;
    const left = () => Math.max(0, Math.ceil((undoing.ends - performance.now()) / 1000));
    const show_left = () => { undo.querySelector(".left").textContent = `${left()} s`; };
    show_left();
    undo.hidden = false;
    undoing.timer = setInterval(() => { if (left() > 0) { show_left(); return; } const settles = !undoing.proposal; undone(); if (settles) settle(); }, 250);
  }

  function undone() {
    if (!undoing) return;
    clearInterval(undoing.timer);
    undoing = null;
    if (undo.contains(document.activeElement)) pane.focus({ preventScroll: true });
    undo.hidden = true;
  }

  async function settle() {
    const found = await ask("settle/", {});
    if (found.earlier) { why(found.earlier); recount(); }
  }

  async function take_back() {
    if (!undoing || busy) return why("no-undo");
    const { id, proposal, row, next } = undoing;
    undone();
    const found = await ask(`${id}/undo/`, proposal ? { proposal } : {});
    if (found.problem) { why(found.problem); return; }
    if (row) { if (next?.isConnected) next.before(row); else rows.append(row); count(1); }
    previews.delete(id);
    close();
    await claim(id, open?.item === id);
    why(found.told);
    recount();
  }
  undo.querySelector("button").addEventListener("click", take_back);

  function count(by) {
    const shown = document.querySelector("#tabs [aria-current] b");
    if (shown && /^\d+$/.test(shown.textContent)) shown.textContent = String(Math.max(0, Number(shown.textContent) + by));
  }

  async function recount() {
    if (document.hidden) return;
    const found = await ask("counts/");
    if (found.tabs) { document.getElementById("tabs").innerHTML = found.tabs; document.getElementById("progress").innerHTML = found.progress; }
  }
  setInterval(recount, 60 * 1000);

  // what is pressed ---------------------------------------------------------------------------------------------------
  const sheet = document.getElementById("sheet"), search = document.getElementById("search");
  const typing = (element) => element.closest?.("input:not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable]") != null;
  const subject = () => { if (open?.subject) location.assign(`${desk.dataset.subjects}${open.subject}/change/`); else why("no-item"); };
  // What is looked at, or else the next that nobody holds.
  const claimThis = () => claim(open && !open.claimed ? open.item : undefined);

  const single_keys = {
    j: () => step(1), k: () => step(-1), J: () => step(1, true), K: () => step(-1, true),
    ArrowDown: () => step(1), ArrowUp: () => step(-1),
    m: claimThis, a: () => keyed("a", "confirm"), d: () => keyed("d", "reject"), e: () => keyed("e", "edit"), q: () => keyed("q", "ask_more"),
    r: () => offer("redact"), w: () => { if (opened()?.dataset.act !== "redact") offer("redact"); if (opened()?.dataset.act === "redact") to_text(); }, h: () => offer("hold"), v: () => offer("reveal"), z: take_back,
    1: () => classify(0), 2: () => classify(1), 3: () => classify(2), 4: () => classify(3),
    " ": () => pick(current()), b: () => { if (selected().length) openSeveral(); else why("none-selected"); }, g: () => { prefix = "g"; setTimeout(() => { prefix = ""; }, 1200); },
    "/": () => { search.showModal(); }, "?": () => sheet.showModal(),
  };

  function classify(level) {
    if (opened()?.dataset.act !== "edit" && opened()?.dataset.act !== "confirm") offer("confirm");
    const form = opened(), choice = form?.querySelector(`input[name=level][value="${level}"]`);
    if (!form) return;
    if (!choice) why("no-such-act");
    else if (choice.disabled) why("lower");
    else choice.checked = true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = event.target.closest("form.act") ?? opened();
      if (form) { event.preventDefault(); send(form); }
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") { if (!close()) for (const each of selected()) pick(each, false); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key === "Enter" && event.target.matches("form.act input[name=scope][value=words]")) { event.preventDefault(); to_text(); return; }
    const inRows = rows.contains(event.target);
    if (!single && !(inRows && ["ArrowDown", "ArrowUp", " ", "Enter"].includes(event.key))) return;
    if (event.key === "Enter" && inRows) { event.preventDefault(); claimThis(); return; }
    if (event.key.startsWith("Arrow") && !inRows) return;
    if (event.key === " " && event.target.closest("button, a, label, input")) return;
    if (prefix === "g") { prefix = ""; if (event.key === "s") { event.preventDefault(); subject(); } return; }
    const act = single_keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  document.addEventListener("click", (event) => {
    const row = event.target.closest("#rows [role=option]");
    if (row) { if (event.shiftKey || event.ctrlKey || event.metaKey) pick(row); else if (row !== current() || !open?.claimed) look(row); return; }
    const button = event.target.closest("button");
    if (!button) return;
    if (button.hasAttribute("data-close")) { button.closest("dialog")?.close(); if (button.closest("form.act")) close(); return; }
    const does = { claim: () => claim(), "claim-this": claimThis, act: () => offer(button.dataset.act), reveal: () => offer("reveal"), release, "to-text": to_text }[button.dataset.do];
    if (does) { event.preventDefault(); does(); }
  });
  pane.addEventListener("submit", (event) => { event.preventDefault(); send(event.target); });
  document.getElementById("more").addEventListener("click", more);
  document.getElementById("help").addEventListener("click", () => sheet.showModal());
  document.getElementById("find").addEventListener("click", () => search.showModal());
  document.getElementById("single").addEventListener("change", async (event) => {
    single = event.target.checked;
    await ask(desk.dataset.keys, { single: single ? "on" : "off" });
    why(single ? "keys-on" : "keys-off");
  });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("_x_adminTheme", JSON.stringify(root.dataset.theme)); } catch { /* a browser that keeps nothing */ }
  });
  // several at once ---------------------------------------------------------------------------------------------------
  const several = document.getElementById("several"), outcome = document.getElementById("several-outcome");
  const doing = several.querySelector("[data-step=do]");
  let looked = [];

  document.addEventListener("desk:picked", ({ detail }) => {
    let bar = document.getElementById("picked");
    if (!detail.length) { bar?.remove(); return; }
    if (!bar) { bar = Object.assign(document.createElement("button"), { type: "button", id: "picked", className: "main" }); acts.before(bar); bar.addEventListener("click", openSeveral); }
    bar.textContent = `${detail.length} ${words.selected}`;
  });
  const openSeveral = () => { looked = []; doing.hidden = true; outcome.textContent = ""; document.getElementById("several-count").textContent = String(selected().length); several.showModal(); };

  const chosen = () => { const data = new FormData(several.querySelector("form")), act = data.get("act"); return { act, reason: data.get(`reason-${act}`) }; };
  const summed = (found) => { const sums = {}; for (const each of found) sums[each.words] = (sums[each.words] ?? 0) + 1; return Object.entries(sums).map(([name, number]) => `${number} ${name}`).join(" · "); };

  async function inChunks(items, more = {}) {
    const found = [];
    for (let at = 0; at < items.length; at += 25) {
      const answer = await ask("several/", { ...chosen(), ...more, items: items.slice(at, at + 25).join(",") });
      if (answer.problem) { outcome.textContent = answer.problem; break; }
      found.push(...answer.lines);
      outcome.textContent = `${summed(found)} (${found.length} / ${items.length})`;
    }
    return found;
  }

  several.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const items = selected().slice(0, 500).map((each) => each.dataset.item);
    if (!items.length) return;
    looked = await inChunks(items);
    doing.hidden = !looked.some((each) => each.outcome === "will_change");
    if (!doing.hidden) doing.focus();
  });
  several.addEventListener("change", () => { doing.hidden = true; outcome.textContent = ""; });
  doing.addEventListener("click", async () => {
    doing.hidden = true;
    const ready = looked.filter((each) => each.outcome === "will_change");
    const done = await inChunks(ready.map((each) => `${each.item}:${each.digest}`), { bulk: crypto.randomUUID() });
    for (const each of done) { const row = line(each.item); if (row) { pick(row, false); if (each.outcome === "changed") { previews.delete(each.item); row.remove(); } } }
    recount();
    if (open && !line(open.item)) { open = null; claim(); }
  });

  search.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const id = new FormData(event.target).get("id").trim(), place = search.querySelector(".problem");
    const found = await ask(`find/?id=${encodeURIComponent(id)}`);
    if (found.problem) { place.textContent = found.problem; place.hidden = false; return; }
    location.assign(found.address);
  });
  // A page that the browser kept would show what its claim no longer covers.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  if (desk.dataset.wanted) claim(desk.dataset.wanted);
  else point(lines()[0] ?? null);
  ahead({ nextElementSibling: lines()[0] });
})();
