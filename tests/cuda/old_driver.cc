// SPDX-License-Identifier: Apache-2.0
// As much of a driver's library as the CUDA runtime asks of one that is too old for it.
#include <cstring>

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): the driver's names
int cuDriverGetVersion(int* version) {
  *version = 12000;
  return 0;
}

int cuInit(unsigned) { return 0; }

int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  constexpr int kNotFound = 500;
  *function = nullptr;
  if (std::strcmp(name, "cuDriverGetVersion") == 0)
    *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(&cuInit);
  if (std::strcmp(name, "cuGetProcAddress") == 0)
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  if (found != nullptr) *found = *function == nullptr ? 1 : 0;
  return *function == nullptr ? kNotFound : 0;
}
// NOLINTEND(readability-identifier-naming)
}
