// SPDX-License-Identifier: Apache-2.0
#include "flight_recorder/journal.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/status_macros.h"

namespace inflight::flight_recorder {
namespace {

constexpr size_t kFrameBytes = 8;
constexpr size_t kMaxHeaderBytes = 1 << 20;

uint32_t CheckOf(std::string_view record) { return static_cast<uint32_t>(HashOf(record)); }

uint32_t NumberAt(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::string_view TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

void AppendFrame(RecordKind kind, std::string_view record, std::string* out) {
  const size_t begin = out->size();
  out->append(kFrameBytes, '\0');
  out->push_back(static_cast<char>(kind));
  out->append(record);
  const std::string_view whole = std::string_view(*out).substr(begin + kFrameBytes);
  const auto size = static_cast<uint32_t>(whole.size());
  const uint32_t check = CheckOf(whole);
  std::memcpy(out->data() + begin, &size, sizeof(size));
  std::memcpy(out->data() + begin + sizeof(size), &check, sizeof(check));
}

std::filesystem::path EarlierPart(const std::filesystem::path& file) {
  return file.string() + ".1";
}

Result<std::optional<std::string_view>> Journal::NextRecord(Part& part, uint64_t* num_torn_bytes) {
  const std::string_view bytes = TextOf(part.file);
  const size_t left = bytes.size() - part.at;
  if (left == 0) return std::optional<std::string_view>();
  if (left < kFrameBytes || NumberAt(bytes, part.at) > left - kFrameBytes) {
    *num_torn_bytes += left;
    part.at = bytes.size();
    return std::optional<std::string_view>();
  }
  const std::string_view record = bytes.substr(part.at + kFrameBytes, NumberAt(bytes, part.at));
  if (record.empty() || CheckOf(record) != NumberAt(bytes, part.at + sizeof(uint32_t)))
    return DataLoss(fmt::format("{}: the record at byte {} is not what was written",
                                part.path.string(), part.at));
  part.at += kFrameBytes + record.size();
  return std::optional(record);
}

Result<Journal::Part> Journal::OpenPart(const std::filesystem::path& path, Header* header) {
  Part part{.path = path};
  ASSIGN_OR_RETURN(part.file, MappedFile::Open(path));
  if (!TextOf(part.file).starts_with(kMagic))
    return InvalidArgument(fmt::format("{}: no journal of inflight serve --record", path.string()));
  part.at = kMagic.size();
  uint64_t num_torn_bytes = 0;
  ASSIGN_OR_RETURN(const auto record, NextRecord(part, &num_torn_bytes));
  if (!record) return DataLoss(path.string() + ": the journal ends before its header does");
  if (record->front() != static_cast<char>(RecordKind::kHeader) || record->size() > kMaxHeaderBytes)
    return DataLoss(path.string() + ": the journal does not begin with a header");
  auto parsed = ParseHeader(record->substr(1));
  if (!parsed.ok()) return parsed.status().WithPrefix(path.string());
  *header = *std::move(parsed);
  return part;
}

Result<Journal> Journal::Open(const std::filesystem::path& file) {
  Journal journal;
  ASSIGN_OR_RETURN(Part newest, OpenPart(file, &journal.header_));
  const std::filesystem::path before = EarlierPart(file);
  if (!journal.has_beginning() && FileExists(before)) {
    Header header;
    auto earlier = OpenPart(before, &header);
    if (earlier.ok() && header.run == journal.header_.run &&
        header.part + 1 == journal.header_.part) {
      journal.parts_.push_back(*std::move(earlier));
      journal.header_ = std::move(header);
    }
  }
  journal.parts_.push_back(std::move(newest));
  return journal;
}

Result<Journal::Item> Journal::Next(TurnRecord* turn, uint64_t* num_lost) {
  for (; part_ < parts_.size(); ++part_) {
    Part& part = parts_[part_];
    const size_t at = part.at;
    ASSIGN_OR_RETURN(const auto record, NextRecord(part, &num_torn_bytes_));
    if (!record) continue;
    const auto bad = [&](const std::string& what) {
      return DataLoss(fmt::format("{}: the record at byte {}: {}", part.path.string(), at, what));
    };
    const std::string_view body = record->substr(1);
    switch (static_cast<RecordKind>(record->front())) {
      case RecordKind::kTurn:
        if (const Status parsed = ParseTurn(body, turn); !parsed.ok()) return bad(parsed.message());
        return Item::kTurn;
      case RecordKind::kGap:
        if (body.size() != sizeof(*num_lost)) return bad("a gap is not so long");
        std::memcpy(num_lost, body.data(), sizeof(*num_lost));
        return Item::kGap;
      case RecordKind::kHeader:
        return bad("a second header");
    }
    return bad(fmt::format("is of kind {}, must be in [1, 3]",
                           static_cast<unsigned>(static_cast<unsigned char>(record->front()))));
  }
  return Item::kEnd;
}

}  // namespace inflight::flight_recorder
