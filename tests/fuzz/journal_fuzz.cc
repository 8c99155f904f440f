// SPDX-License-Identifier: Apache-2.0
// Any bytes as a journal of the flight recorder, as they are and behind valid frames: an error, or
// turns that are written as they were read.
//
// The first byte chooses: a file, a header, a turn, the frames of a file.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "flight_recorder/journal.h"

namespace {

using namespace inflight::flight_recorder;  // NOLINT: a fuzzer's main file

void CheckTurn(const TurnRecord& turn) {
  std::vector<Arrival> arrivals;
  const auto parsed = ParseArrivals(turn.arrivals, turn.num_arrivals, &arrivals);
  if (parsed.ok()) {
    CHECK_EQ(arrivals.size(), turn.num_arrivals);
  } else {
    CHECK(!parsed.message().empty());
  }
  std::string written;
  AppendTurn(turn, &written);
  TurnRecord again;
  CHECK(ParseTurn(written, &again).ok());
  std::string written_again;
  AppendTurn(again, &written_again);
  CHECK(written == written_again);
  CHECK(again.ends == turn.ends);
}

void CheckHeader(const Header& header) {
  const std::string written = HeaderText(header);
  const auto again = ParseHeader(written);
  CHECK_EQ(again.status().ToString(), "OK");
  CHECK(HeaderText(*again) == written);
}

// Of a file that has these bytes.
void ReadJournal(std::string_view bytes) {
  static const int fd = memfd_create("journal", 0);
  CHECK_EQ(ftruncate(fd, 0), 0);
  CHECK_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  auto journal = Journal::Open("/proc/self/fd/" + std::to_string(fd));
  if (!journal.ok()) {
    CHECK(!journal.status().message().empty());
    return;
  }
  CheckHeader(journal->header());
  TurnRecord turn;
  uint64_t num_lost = 0;
  for (size_t i = 0; i <= bytes.size(); ++i) {  // no record is without a byte
    const auto item = journal->Next(&turn, &num_lost);
    if (!item.ok()) {
      CHECK(!item.status().message().empty());
      return;
    }
    if (*item == Journal::Item::kEnd) return;
    if (*item == Journal::Item::kTurn) CheckTurn(turn);
  }
  CHECK(false);
}

// A header that is valid, and records of the input, each behind its size in two bytes and its kind.
std::string Framed(std::string_view input) {
  std::string bytes(kMagic);
  AppendFrame(RecordKind::kHeader, HeaderText({.shape = "any"}), &bytes);
  constexpr size_t kBefore = 3;
  while (input.size() >= kBefore) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(input[i]); };
    const size_t size = std::min<size_t>(byte(0) | byte(1) << 8, input.size() - kBefore);
    AppendFrame(static_cast<RecordKind>(byte(2)), input.substr(kBefore, size), &bytes);
    input.remove_prefix(kBefore + size);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0:
      ReadJournal(input);
      break;
    case 1:
      if (const auto header = ParseHeader(input); header.ok()) CheckHeader(*header);
      break;
    case 2: {
      TurnRecord turn;
      if (ParseTurn(input, &turn).ok()) CheckTurn(turn);
      break;
    }
    default:
      ReadJournal(Framed(input));
  }
  return 0;
}
