// The page's own words. Names of runs and figures are shown as they are.
const LANGUAGES = {
  en: {
    other: "中文", toOther: "Show this page in Chinese", dark: "Dark", light: "Light", toDark: "Switch to dark colors",
    toLight: "Switch to light colors", heading: "Training curves", runs: "Runs", logarithm: "Logarithmic", smooth: "Smooth",
    notSmooth: "not", step: "step", atStep: (step) => `step ${step}`, none: "There are no figures yet.",
    chart: (name) => `${name}. Left and right move from step to step.`,
    last: (run, value, step) => `${run}: ${value} at step ${step}`,
  },
  zh: {
    other: "English", toOther: "用英文显示本页", dark: "深色", light: "浅色", toDark: "切换到深色",
    toLight: "切换到浅色", heading: "训练曲线", runs: "运行", logarithm: "对数坐标", smooth: "平滑",
    notSmooth: "不平滑", step: "步", atStep: (step) => `第 ${step} 步`, none: "还没有任何指标。",
    chart: (name) => `${name}。用左右方向键逐步移动。`,
    last: (run, value, step) => `${run}：第 ${step} 步为 ${value}`,
  },
};
