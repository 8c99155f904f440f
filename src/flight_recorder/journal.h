// SPDX-License-Identifier: Apache-2.0
// The files of a journal: FILE, and FILE.1 with what was before it. Written by recorder.h.
//
//   8 bytes   "IFLTREC1"
//   frames    4 bytes size of the record, 4 bytes check of it, the record; numbers little-endian
//   record    1 byte kind, then: header (JSON), turn (turn_record.h), or gap (8 bytes, how many
//             turns are missing here)
//
// The first record of a file is a header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "flight_recorder/header.h"
#include "flight_recorder/turn_record.h"

namespace inflight::flight_recorder {

inline constexpr std::string_view kMagic = "IFLTREC1";

enum class RecordKind : uint8_t { kHeader = 1, kTurn = 2, kGap = 3 };

// A record's frame, to the end of `out`.
void AppendFrame(RecordKind kind, std::string_view record, std::string* out);

// FILE.1 of FILE.
std::filesystem::path EarlierPart(const std::filesystem::path& file);

class Journal {
 public:
  // Of FILE, and of FILE.1 where that is the part before it. kInvalidArgument where FILE is no
  // journal, kDataLoss where it is broken at its beginning.
  static Result<Journal> Open(const std::filesystem::path& file);

  const Header& header() const { return header_; }  // of the first part
  bool has_beginning() const { return header_.part == 0; }

  enum class Item : uint8_t { kTurn, kGap, kEnd };
  // The next turn into `turn`, or the number of those that are missing into `num_lost`. kDataLoss
  // names file and place of what is broken. A part whose last record is not whole ends before it.
  Result<Item> Next(TurnRecord* turn, uint64_t* num_lost);
  uint64_t num_torn_bytes() const { return num_torn_bytes_; }  // of such records, so far

 private:
  struct Part {
    std::filesystem::path path;
    MappedFile file;
    size_t at = 0;
  };
  static Result<Part> OpenPart(const std::filesystem::path& path, Header* header);
  // A frame's record with its kind; nothing at the end of the part.
  static Result<std::optional<std::string_view>> NextRecord(Part& part, uint64_t* num_torn_bytes);

  std::vector<Part> parts_;
  size_t part_ = 0;
  Header header_;
  uint64_t num_torn_bytes_ = 0;
};

}  // namespace inflight::flight_recorder
