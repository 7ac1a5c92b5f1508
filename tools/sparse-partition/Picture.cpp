// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws a plan.

#include "Report.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::formatv;

namespace {
/// The colours of the other pictures, and the places of this one, in pixels.
constexpr StringRef forwardColor = "#1f5fa8", backwardColor = "#c8641e",
                    endColor = "#3c8c46", grey = "#666";
constexpr double left = 70, width = 720, top = 50, row = 26, gap = 6,
                 memoryLeft = left + width + 30, memoryWidth = 140;
} // namespace

static std::string escape(StringRef text) {
  std::string escaped;
  for (char c : text)
    if (c == '<')
      escaped += "&lt;";
    else if (c == '&')
      escaped += "&amp;";
    else if (c == '>')
      escaped += "&gt;";
    else
      escaped += c;
  return escaped;
}

static void text(llvm::raw_ostream &os, double x, double y,
                 const llvm::Twine &words, StringRef anchor = "start",
                 StringRef color = grey) {
  os << formatv("<text x=\"{0:f1}\" y=\"{1:f1}\" text-anchor=\"{2}\" "
                "fill=\"{3}\">{4}</text>\n",
                x, y, anchor, color, escape(words.str()));
}

static void box(llvm::raw_ostream &os, double x, double y, double wide,
                double high, StringRef color) {
  os << formatv("<rect x=\"{0:f2}\" y=\"{1:f1}\" width=\"{2:f2}\" "
                "height=\"{3:f1}\" fill=\"{4}\" stroke=\"white\" "
                "stroke-width=\"0.3\"/>\n",
                x, y, wide, high, color);
}

void bsr::drawPicture(const Report &report, llvm::raw_ostream &os) {
  const StagePlan &plan = report.plan;
  double height = top + double(plan.stages.size()) * row + 50;
  double full = memoryLeft + memoryWidth + 90;
  double scale = width / report.timeline.seconds;
  os << formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:f0}\" "
                "height=\"{1:f0}\" viewBox=\"0 0 {0:f0} {1:f0}\" "
                "font-family=\"sans-serif\" font-size=\"13\">\n"
                "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                full, height);
  text(os, left, 20,
       formatv("{0} micro-batches, predicted: {1:f3} ms a step",
               plan.microBatches, report.timeline.seconds * 1e3)
           .str());
  text(os, left, 40, "forward", "start", forwardColor);
  text(os, left + 60, 40, "backward", "start", backwardColor);
  text(os, left + 130, 40, "means and update", "start", endColor);
  text(
      os, memoryLeft, 40,
      formatv("memory of {0:f1} GiB", report.devices.memory / (1 << 30)).str());
  for (auto [number, stage] : llvm::enumerate(plan.stages)) {
    double y = top + double(number) * row;
    const StageCost &cost = report.costs[number];
    text(os, left - 8, y + 15,
         formatv("{0} x {1}", number, stage.replicas).str(), "end");
    double last = 0;
    for (const ScheduledTask &interval : report.timeline.stages[number]) {
      box(os, left + interval.begin * scale, y,
          (interval.end - interval.begin) * scale, row - gap,
          interval.isForward ? forwardColor : backwardColor);
      last = std::max(last, interval.end);
    }
    box(os, left + last * scale, y, cost.end * scale, row - gap, endColor);
    double bytes = memoryWidth / report.devices.memory;
    box(os, memoryLeft, y, memoryWidth, row - gap, "#e4e4e4");
    box(os, memoryLeft, y, cost.getMemory() * bytes, row - gap, grey);
    text(os, memoryLeft + memoryWidth + 8, y + 15,
         formatBytes(cost.getMemory()));
  }
  text(os, left, height - 15,
       "a row for each stage, with the number of its devices, from the first "
       "part of the step to the last");
  os << "</svg>\n";
}
