// Presses the button of a one-time link for a person who follows it; programs that read the page do not wait.
"use strict";
addEventListener("pageshow", () => {
  if (document.visibilityState === "visible") document.getElementById("open").requestSubmit();
}, { once: true });
