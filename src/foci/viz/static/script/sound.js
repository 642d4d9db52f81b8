// The words of a recording: a click plays it from there.

function wireSound() {
  const sound = document.querySelector("audio.sound");
  for (const word of document.querySelectorAll("[data-start]")) {
    word.addEventListener("click", () => {
      sound.currentTime = Number(word.dataset.start);
      sound.play();
    });
  }
}
