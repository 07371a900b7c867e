// A key that was not used, or that the browser has none of, says so on the page and not in the console alone.
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  const problem = document.getElementById("key-problem");
  if (problem) problem.hidden = false;
});
