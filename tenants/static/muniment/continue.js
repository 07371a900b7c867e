// A provider's answer came from another site, and so without our cookies: our own page sends it on. Without this, a button does.
document.getElementById("continue").submit();
