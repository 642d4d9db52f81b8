// The words of a recording: a click plays it from there.

for (const word of document.querySelectorAll("[data-start]")) {
  word.addEventListener("click", () => {
    const sound = document.querySelector("audio.sound");
    sound.currentTime = Number(word.dataset.start);
    sound.play();
  });
}
