// SPDX-License-Identifier: Apache-2.0
#include "artifact/zip_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "artifact/printable.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are read without swapping");

using Bytes = std::span<const std::byte>;

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kZip64EndSignature = 0x06064b50;
constexpr uint32_t kZip64LocatorSignature = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kZip64EndBytes = 56;
constexpr size_t kZip64LocatorBytes = 20;
constexpr size_t kMaxCommentBytes = 65535;
constexpr uint16_t kZip64ExtraId = 1;
constexpr uint16_t kEncryptedFlag = 1U << 0;
constexpr uint16_t kSizesFollowFlag = 1U << 3;  // the local header has none
constexpr uint16_t kIn64 = 0xffff;              // "see the zip64 record"
constexpr uint32_t kIn64Wide = 0xffffffff;

// The caller has checked that the field lies within.
template <typename T>
T Field(Bytes bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::string_view Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Directory {
  uint64_t num_entries = 0;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

struct CentralRecord {
  std::string_view name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint64_t stored_bytes = 0;
  uint64_t num_bytes = 0;
  uint64_t local_offset = 0;
};

class ZipReader {
 public:
  explicit ZipReader(Bytes bytes) : bytes_(bytes) {}

  Result<std::vector<ZipEntry>> Read() {
    ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
    std::vector<ZipEntry> entries;
    std::unordered_set<std::string_view> names;
    Bytes rest = bytes_.subspan(directory.offset, directory.num_bytes);
    for (uint64_t i = 0; i < directory.num_entries; ++i) {
      ASSIGN_OR_RETURN(const CentralRecord record, ReadCentral(rest));
      if (!names.insert(record.name).second) return Error(record.name, "comes twice");
      ASSIGN_OR_RETURN(const ZipEntry entry, Locate(record, directory.offset));
      entries.push_back(entry);
    }
    if (!rest.empty())
      return InvalidArgument(fmt::format("zip directory: {} bytes after its {} entries",
                                         rest.size(), directory.num_entries));
    RETURN_IF_ERROR(CheckApart(entries));
    return entries;
  }

 private:
  // Bytes [begin, end) that an entry takes, its local header included.
  struct Extent {
    uint64_t begin;
    uint64_t end;
    std::string_view name;
  };

  Status Error(std::string_view entry, std::string_view what) const {
    return InvalidArgument(fmt::format("zip entry {}: {}", Printable(entry), what));
  }
  Status Truncated(std::string_view what) const {
    return DataLoss(fmt::format("truncated: {}", what));
  }

  Result<Directory> FindDirectory() const {
    ASSIGN_OR_RETURN(const size_t end, FindEnd());
    Directory directory{.num_entries = Field<uint16_t>(bytes_, end + 10),
                        .offset = Field<uint32_t>(bytes_, end + 16),
                        .num_bytes = Field<uint32_t>(bytes_, end + 12)};
    bool has_several_disks = Field<uint16_t>(bytes_, end + 4) != Field<uint16_t>(bytes_, end + 6);
    size_t limit = end;  // where the directory must have ended
    if (end >= kZip64LocatorBytes &&
        Field<uint32_t>(bytes_, end - kZip64LocatorBytes) == kZip64LocatorSignature) {
      const auto at = Field<uint64_t>(bytes_, end - kZip64LocatorBytes + 8);
      if (at > end - kZip64LocatorBytes || end - kZip64LocatorBytes - at < kZip64EndBytes ||
          Field<uint32_t>(bytes_, at) != kZip64EndSignature)
        return InvalidArgument(fmt::format("zip: no zip64 end record at byte {} as said", at));
      directory = {.num_entries = Field<uint64_t>(bytes_, at + 32),
                   .offset = Field<uint64_t>(bytes_, at + 48),
                   .num_bytes = Field<uint64_t>(bytes_, at + 40)};
      has_several_disks = Field<uint32_t>(bytes_, at + 16) != Field<uint32_t>(bytes_, at + 20) ||
                          Field<uint64_t>(bytes_, at + 24) != directory.num_entries;
      limit = at;
    }
    if (has_several_disks) return InvalidArgument("zip: spans several disks");
    if (directory.offset > limit || directory.num_bytes != limit - directory.offset)
      return InvalidArgument(
          fmt::format("zip directory: {} bytes at byte {}, its end record stands at byte {}",
                      directory.num_bytes, directory.offset, limit));
    return directory;
  }

  // The end record is the last thing in the file; only its comment, of known length, follows.
  Result<size_t> FindEnd() const {
    if (bytes_.size() < kEndBytes) return Truncated("no zip end record");
    const size_t last = bytes_.size() - kEndBytes;
    for (size_t comment = 0; comment <= std::min(kMaxCommentBytes, last); ++comment)
      if (Field<uint32_t>(bytes_, last - comment) == kEndSignature &&
          Field<uint16_t>(bytes_, last - comment + 20) == comment)
        return last - comment;
    return Truncated("no zip end record");
  }

  // Takes one record off `rest`.
  Result<CentralRecord> ReadCentral(Bytes& rest) const {
    if (rest.size() < kCentralBytes || Field<uint32_t>(rest, 0) != kCentralSignature)
      return InvalidArgument("zip directory: no record where one was expected");
    const size_t name_bytes = Field<uint16_t>(rest, 28);
    const size_t extra_bytes = Field<uint16_t>(rest, 30);
    const size_t comment_bytes = Field<uint16_t>(rest, 32);
    if (rest.size() - kCentralBytes < name_bytes + extra_bytes + comment_bytes)
      return InvalidArgument("zip directory: a record leaves it");
    CentralRecord record{.name = Text(rest.subspan(kCentralBytes, name_bytes)),
                         .flags = Field<uint16_t>(rest, 8),
                         .method = Field<uint16_t>(rest, 10),
                         .stored_bytes = Field<uint32_t>(rest, 20),
                         .num_bytes = Field<uint32_t>(rest, 24),
                         .local_offset = Field<uint32_t>(rest, 42)};
    if (Field<uint16_t>(rest, 34) != 0 && Field<uint16_t>(rest, 34) != kIn64)
      return Error(record.name, "lies on another disk");
    RETURN_IF_ERROR(ReadZip64Extra(rest.subspan(kCentralBytes + name_bytes, extra_bytes), record));
    rest = rest.subspan(kCentralBytes + name_bytes + extra_bytes + comment_bytes);
    return record;
  }

  // The extra field holds, in this order, those numbers that are all ones in the record (4.5.3).
  Status ReadZip64Extra(Bytes extra, CentralRecord& record) const {
    bool is_found = false;
    while (extra.size() >= 4) {
      const auto id = Field<uint16_t>(extra, 0);
      const size_t num_bytes = Field<uint16_t>(extra, 2);
      if (extra.size() - 4 < num_bytes) return Error(record.name, "extra field leaves its record");
      Bytes field = extra.subspan(4, num_bytes);
      extra = extra.subspan(4 + num_bytes);
      if (id != kZip64ExtraId) continue;
      if (is_found) return Error(record.name, "two zip64 extra fields");
      is_found = true;
      for (uint64_t* value : {&record.num_bytes, &record.stored_bytes, &record.local_offset}) {
        if (*value != kIn64Wide) continue;
        if (field.size() < sizeof(uint64_t)) return Error(record.name, "zip64 field is too short");
        *value = Field<uint64_t>(field, 0);
        field = field.subspan(sizeof(uint64_t));
      }
    }
    return Status::Ok();
  }

  static bool LeavesDirectory(std::string_view name) {
    if (name.empty() || name.front() == '/') return true;
    if (name.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos) return true;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t end = std::min(name.find('/', begin), name.size());
      if (name.substr(begin, end - begin) == "..") return true;
      begin = end + 1;
    }
    return false;
  }

  Status CheckKind(const CentralRecord& record) const {
    if (LeavesDirectory(record.name))
      return Error(record.name, "a name within the archive is needed");
    if ((record.flags & kEncryptedFlag) != 0) return Error(record.name, "is encrypted");
    if (record.method != 0)
      return Unimplemented(
          fmt::format("zip entry {}: is compressed (method {}); torch.save stores its entries as "
                      "they are, torch.jit.save and other programs do not",
                      Printable(record.name), record.method));
    if (record.stored_bytes != record.num_bytes)
      return Error(record.name, fmt::format("stored as {} bytes, but has {}", record.stored_bytes,
                                            record.num_bytes));
    return Status::Ok();
  }

  // The local header repeats the record; where they differ, readers would too.
  Result<ZipEntry> Locate(const CentralRecord& record, uint64_t limit) {
    RETURN_IF_ERROR(CheckKind(record));
    const uint64_t at = record.local_offset;
    if (at > limit || limit - at < kLocalBytes || Field<uint32_t>(bytes_, at) != kLocalSignature)
      return Error(record.name, fmt::format("no local header at byte {}", at));
    const Bytes header = bytes_.subspan(at, limit - at);
    const size_t name_bytes = Field<uint16_t>(header, 26);
    const size_t before_data = kLocalBytes + name_bytes + Field<uint16_t>(header, 28);
    if (header.size() < before_data || header.size() - before_data < record.num_bytes)
      return Error(record.name, fmt::format("{} bytes at byte {} do not fit before the directory",
                                            record.num_bytes, at));
    const std::string_view name = Text(header.subspan(kLocalBytes, name_bytes));
    if (name != record.name)
      return Error(record.name,
                   fmt::format("its local header has another name, {}", Printable(name)));
    const auto local_bytes = Field<uint32_t>(header, 22);
    const bool sizes_follow = (Field<uint16_t>(header, 6) & kSizesFollowFlag) != 0;
    if (Field<uint16_t>(header, 8) != 0 || (Field<uint16_t>(header, 6) & kEncryptedFlag) != 0 ||
        (!sizes_follow && local_bytes != kIn64Wide && local_bytes != record.num_bytes))
      return Error(record.name, "its local header contradicts the directory");
    extents_.push_back({at, at + before_data + record.num_bytes, record.name});
    return ZipEntry{record.name, header.subspan(before_data, record.num_bytes)};
  }

  // Sorts the entries and checks that none shares bytes with another.
  Status CheckApart(std::vector<ZipEntry>& entries) {
    std::sort(extents_.begin(), extents_.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < extents_.size(); ++i)
      if (extents_[i].begin < extents_[i - 1].end)
        return Error(extents_[i].name,
                     fmt::format("overlaps entry {}", Printable(extents_[i - 1].name)));
    std::sort(entries.begin(), entries.end(),
              [](const ZipEntry& a, const ZipEntry& b) { return a.data.data() < b.data.data(); });
    return Status::Ok();
  }

  Bytes bytes_;
  std::vector<Extent> extents_;
};

}  // namespace

bool LooksLikeZip(Bytes bytes) {
  constexpr std::string_view kFirst("PK\x03\x04", 4);
  constexpr std::string_view kEmpty("PK\x05\x06", 4);  // the end record of a file without entries
  const std::string_view text = Text(bytes.first(std::min(bytes.size(), kFirst.size())));
  return !text.empty() && (kFirst.starts_with(text) || kEmpty.starts_with(text));
}

Result<std::vector<ZipEntry>> ParseZip(Bytes bytes) { return ZipReader(bytes).Read(); }

}  // namespace inflight::artifact
