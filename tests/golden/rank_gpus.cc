// SPDX-License-Identifier: Apache-2.0
#include "rank_gpus.h"

#include <memory>

namespace inflight {

int NumRankGpus() {
  static const int num = [] {
    int found = 0;
    while (found < 8 && Device::Cuda(found).ok()) ++found;
    return found;
  }();
  return num;
}

std::vector<Device*> RankGpus(int num_ranks) {
  static auto* gpus = new std::vector<Device*>();
  for (int i = static_cast<int>(gpus->size()); i < NumRankGpus(); ++i)
    gpus->push_back(Device::Cuda(i)->release());
  return {gpus->begin(), gpus->begin() + num_ranks};
}

}  // namespace inflight
