// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Results.h"
#include <string_view>
#include <vector>

using namespace sparse_opt::train;

Results::Results(Session &session) : loss(session, session.findRole("loss")) {
  for (const Buffer &buffer : session.buffers())
    if (constexpr std::string_view prefix = "metrics.";
        buffer.elements == 1 && buffer.name.rfind(prefix, 0) == 0)
      others.emplace(buffer.name.substr(prefix.size()),
                     Scalar(session, &buffer));
}

void Results::addTo(Sums &sums) const {
  sums.loss += loss.get();
  for (const auto &[name, result] : others)
    sums.others[name] += result.get();
}

void Results::Sums::takeMeans(const Ranks &ranks) {
  std::vector<double> numbers = {loss};
  for (const auto &[name, sum] : others)
    numbers.push_back(sum);
  numbers = ranks.mean(numbers);
  auto mean = numbers.begin();
  loss = *mean++;
  for (auto &[name, sum] : others)
    sum = *mean++;
}
