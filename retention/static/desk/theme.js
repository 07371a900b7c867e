// Light, dark or as the system has it: the choice that the admin's other pages keep, before anything is drawn.
(() => {
  let kept = null;
  try { kept = JSON.parse(localStorage.getItem("_x_adminTheme") ?? "null"); } catch { kept = null; }
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
})();
