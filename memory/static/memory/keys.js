// Keys of the page on which a candidate is decided. No key decides by itself: it leads to a form, which is then sent.
// Whoever turned single keys off at the desk has them off here too; a key with ctrl still sends.
(() => {
  const single = document.currentScript.dataset.single !== "off";
  const typing = (element) => element.closest("input, textarea, [contenteditable]") !== null;
  document.addEventListener("keydown", (event) => {
    const form = event.target.closest("form");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && form?.closest(".m-decide")) {
      event.preventDefault();
      form.requestSubmit();
      return;
    }
    if (!single || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key === "j") document.getElementById("m-next")?.click();
    if (!["a", "d", "v"].includes(event.key)) return;
    const aim = document.querySelector(`.m-decide [data-key="${event.key}"]`);
    if (aim === null) return;
    event.preventDefault();
    aim.focus();
    if (event.key === "v") aim.click();
  });
})();
