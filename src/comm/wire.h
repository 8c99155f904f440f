// SPDX-License-Identifier: Apache-2.0
// What the processes of a group say to each other, byte for byte: little-endian, as the processors
// that this runs on have it.
//
//   joining:   Hello ->    <- Answer, then its bytes: a refusal's text, or a Place for each rank
//   data:      Hello ->    then messages: 8 bytes of length, and so many bytes
//   control:   the connection that a rank joined by, both ways: Notices
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace inflight::comm {

static_assert(std::endian::native == std::endian::little);

inline constexpr std::array<char, 8> kMagic = {'i', 'n', 'f', 'l', 'r', 'a', 'n', 'k'};
inline constexpr uint32_t kWireVersion = 1;

struct Hello {
  enum Kind : uint32_t { kJoin = 1, kData = 2 };

  std::array<char, 8> magic = kMagic;
  uint32_t wire_version = kWireVersion;  // up to here the same in all versions
  uint32_t kind = kJoin;
  uint32_t rank = 0;
  uint32_t size = 0;
  uint64_t hash = 0;
  uint64_t group = 0;  // of kData: what the Answer said
  uint32_t port = 0;   // of kJoin: where this rank listens for data
  uint32_t zero = 0;
  std::array<char, 24> version = {};
};
static_assert(sizeof(Hello) == 72);

struct Answer {
  std::array<char, 8> magic = kMagic;
  uint32_t accepted = 0;  // 1, or 0: refused
  uint32_t bytes = 0;     // that follow
  uint64_t group = 0;     // drawn by rank 0
};
static_assert(sizeof(Answer) == 24);

inline constexpr uint32_t kMaxRefusalBytes = 4096;

// Where a rank listens for data.
struct Place {
  uint32_t port = 0;
  uint32_t at_leader = 0;                // 1: at the address by which rank 0 is reached
  std::array<uint8_t, 16> address = {};  // of IPv6
};
static_assert(sizeof(Place) == 24);

struct Notice {
  enum Kind : uint32_t {
    kReady = 1,    // to rank 0: has its connections of data
    kGo = 2,       // of rank 0: all have
    kBeat = 3,     // a heartbeat
    kLeft = 4,     // the sender has left
    kGone = 5,     // `rank` is lost
    kAborted = 6,  // `rank` has ended the group
  };

  uint32_t kind = kBeat;
  uint32_t rank = 0;  // the highest bit is free
};
static_assert(sizeof(Notice) == 8);

// In place of a message's length: there are no more, because of that notice.
inline constexpr uint64_t kNoticeBit = uint64_t{1} << 63;
inline uint64_t AsLength(const Notice& notice) {
  return kNoticeBit | std::bit_cast<uint64_t>(notice);
}
inline Notice AsNotice(uint64_t length) { return std::bit_cast<Notice>(length & ~kNoticeBit); }

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> WritableBytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace inflight::comm
