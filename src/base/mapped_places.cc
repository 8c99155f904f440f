// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_places.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace inflight {
namespace {

struct Place {
  std::atomic<const std::byte*> data = nullptr;  // null = free; set last and cleared first
  std::atomic<size_t> size = 0;
  std::atomic<char*> path = nullptr;
};

constinit std::array<Place, 4096> places;
constinit std::mutex places_mutex;  // of those that write; the handler reads without it

}  // namespace

void RememberMapping(const std::byte* data, size_t size, const std::filesystem::path& path) {
  const std::lock_guard lock(places_mutex);
  for (Place& place : places) {
    if (place.data.load() != nullptr) continue;
    place.size = size;
    place.path = strdup(path.c_str());
    place.data = data;
    return;
  }
}

void ForgetMapping(const std::byte* data) {
  const std::lock_guard lock(places_mutex);
  for (Place& place : places) {
    if (place.data.load() != data) continue;
    place.data = nullptr;
    std::free(place.path.exchange(nullptr));
    return;
  }
}

const char* MappedPathAt(const void* address) {
  for (const Place& place : places) {
    const std::byte* const data = place.data.load();
    if (data != nullptr && address >= data && address < data + place.size.load()) {
      return place.path.load();
    }
  }
  return nullptr;
}

}  // namespace inflight
