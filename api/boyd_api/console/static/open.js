// Presses the button of a one-time link, which only its owner's terminal shows: no message has one.
"use strict";
addEventListener("pageshow", () => {
  if (document.visibilityState === "visible") document.getElementById("open").requestSubmit();
}, { once: true });
