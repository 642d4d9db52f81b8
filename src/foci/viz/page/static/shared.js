// What both kinds of pages use: their data, language and theme, and small helpers.

const page = JSON.parse(document.getElementById("trace").textContent);
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const state = {
  language: (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en",
  theme: dark.matches ? "dark" : "light",
};

const phrase = (words, values) => (typeof words === "function" ? words(...values) : words);
const say = (key, ...values) => phrase(LANGUAGES[state.language][key], values);

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  return element;
}

function make(tag, properties = {}, ...children) {
  const element = set(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const swatch = (color) => {
  const element = make("span", { class: "swatch", "aria-hidden": "true" });
  element.style.backgroundColor = color;
  return element;
};

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function translate() {
  const chinese = state.language === "zh";
  document.documentElement.lang = chinese ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", say(element.dataset.label));
  set(byId("language"), { text: say("other"), lang: chinese ? "en" : "zh", "aria-label": `${say("other")}: ${say("toOther")}` });
  dress();
}

function dress() {
  document.documentElement.dataset.theme = state.theme;
  const other = state.theme === "dark" ? "light" : "dark";
  set(byId("theme"), { text: say(other), "aria-label": say(other === "dark" ? "toDark" : "toLight") });
}

/** Let the buttons of the page change its language and theme, each followed by what is to be drawn again. */
function wireSwitches(translated, dressed) {
  byId("language").addEventListener("click", () => {
    state.language = state.language === "zh" ? "en" : "zh";
    translate();
    translated();
  });
  const wear = (theme) => {
    state.theme = theme;
    dress();
    dressed();
  };
  byId("theme").addEventListener("click", () => wear(state.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", (event) => wear(event.matches ? "dark" : "light"));
}
