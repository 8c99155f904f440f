// SPDX-License-Identifier: Apache-2.0
#include "artifact/engine_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <set>
#include <type_traits>
#include <utility>

#include "artifact/sizes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored little-endian");

constexpr std::array<char, 16> kMagic = {'i', 'n', 'f', 'l', 'i', 'g', 'h', 't',
                                         '-', 'e', 'n', 'g', 'i', 'n', 'e', '\n'};
constexpr uint64_t kMaxTableBytes = uint64_t{64} << 20;  // 200 bytes a tensor in practice

struct Header {
  std::array<char, 16> magic = kMagic;
  uint32_t version = kEngineFormatVersion;
  uint32_t header_bytes = 128;
  std::array<char, 32> target{};  // padded with zeros
  uint64_t file_bytes = 0;
  uint64_t table_bytes = 0;
  uint64_t num_tensors = 0;
  uint64_t data_offset = 0;
  uint64_t table_checksum = 0;
  std::array<uint64_t, 3> reserved{};
  uint64_t header_checksum = 0;  // of the bytes before it
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

uint64_t HeaderChecksum(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_checksum));
}

Status Corrupt(const std::string& what) {
  return {StatusCode::kDataLoss,
          what + "; copy the engine again, or rebuild it with `inflight build`"};
}

// Takes typed values from the front of a byte range; a read past the end fails and stays failed.
class TableReader {
 public:
  explicit TableReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    T value{};
    if (sizeof(T) <= bytes_.size()) {
      std::memcpy(&value, bytes_.data(), sizeof(T));
      bytes_ = bytes_.subspan(sizeof(T));
    } else {
      has_failed_ = true;
    }
    return value;
  }
  std::string String() {
    const auto length = Number<uint16_t>();
    if (length > bytes_.size()) has_failed_ = true;
    if (has_failed_) return {};
    std::string text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return text;
  }
  bool has_failed() const { return has_failed_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool has_failed_ = false;
};

void PutBytes(std::string& out, const void* data, size_t n) {
  out.append(static_cast<const char*>(data), n);
}
template <typename T>
void PutNumber(std::string& out, T value) {
  PutBytes(out, &value, sizeof(value));
}
void PutString(std::string& out, std::string_view text) {
  CHECK_LE(text.size(), size_t{UINT16_MAX});
  PutNumber(out, static_cast<uint16_t>(text.size()));
  PutBytes(out, text.data(), text.size());
}

std::string EncodeTable(const EngineTable& table) {
  std::string out;
  for (const EngineTensor& tensor : table.tensors) {
    PutString(out, tensor.name);
    PutString(out, DTypeName(tensor.dtype));
    PutString(out, tensor.layout);
    PutNumber(out, static_cast<uint16_t>(tensor.shape.rank()));
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) PutNumber(out, tensor.shape[axis]);
    PutNumber(out, tensor.offset_bytes);
    PutNumber(out, tensor.num_bytes);
    PutNumber(out, tensor.checksum);
  }
  return out;
}

Result<EngineTensor> DecodeTensor(TableReader& reader) {
  EngineTensor tensor;
  tensor.name = reader.String();
  const std::string dtype_name = reader.String();
  tensor.layout = reader.String();
  const auto rank = reader.Number<uint16_t>();
  if (rank > Shape::kMaxRank)
    return InvalidArgument(fmt::format("{}: {} dimensions, at most {} are supported", tensor.name,
                                       rank, Shape::kMaxRank));
  std::vector<int64_t> dims;
  for (int axis = 0; axis < rank; ++axis) dims.push_back(reader.Number<int64_t>());
  tensor.offset_bytes = reader.Number<uint64_t>();
  tensor.num_bytes = reader.Number<uint64_t>();
  tensor.checksum = reader.Number<uint64_t>();
  if (reader.has_failed()) return Corrupt("the tensor table ends too early");

  const std::optional<DType> dtype = DTypeFromName(dtype_name);
  if (!dtype)
    return InvalidArgument(fmt::format("{}: dtype '{}' is unknown", tensor.name, dtype_name));
  tensor.dtype = *dtype;
  Result<Shape> shape = MakeShape(dims);
  if (!shape.ok()) return shape.status().WithPrefix(tensor.name);
  tensor.shape = *shape;
  const Result<uint64_t> dense_bytes = ByteSize(tensor.dtype, tensor.shape);
  if (!dense_bytes.ok()) return dense_bytes.status().WithPrefix(tensor.name);
  if (tensor.num_bytes < *dense_bytes)
    return InvalidArgument(fmt::format("{}: {} bytes, {} {} needs at least {}", tensor.name,
                                       tensor.num_bytes, dtype_name, tensor.shape.ToString(),
                                       *dense_bytes));
  return tensor;
}

Status CheckPlacement(const EngineTable& table) {
  std::set<std::string_view> names;
  uint64_t free_offset = table.data_offset;
  for (const EngineTensor& tensor : table.tensors) {
    if (!names.insert(tensor.name).second)
      return InvalidArgument(fmt::format("{}: comes twice", tensor.name));
    if (tensor.offset_bytes % kEngineAlignment != 0)
      return InvalidArgument(fmt::format("{}: offset {} is no multiple of {}", tensor.name,
                                         tensor.offset_bytes, kEngineAlignment));
    if (tensor.offset_bytes < free_offset)
      return InvalidArgument(fmt::format("{}: offset {} overlaps what ends at {}", tensor.name,
                                         tensor.offset_bytes, free_offset));
    if (tensor.offset_bytes > table.file_bytes ||
        tensor.num_bytes > table.file_bytes - tensor.offset_bytes)
      return InvalidArgument(fmt::format("{}: {} bytes at offset {} reach beyond the file's {}",
                                         tensor.name, tensor.num_bytes, tensor.offset_bytes,
                                         table.file_bytes));
    free_offset = tensor.offset_bytes + tensor.num_bytes;
  }
  return Status::Ok();
}

Result<Header> ParseHeader(std::span<const std::byte> begin, uint64_t file_bytes) {
  Header header;
  if (begin.size() < sizeof(header))
    return Corrupt(
        fmt::format("truncated: {} bytes, the header alone has {}", file_bytes, sizeof(header)));
  std::memcpy(&header, begin.data(), sizeof(header));
  if (header.magic != kMagic)
    return InvalidArgument(
        "not an engine file of Inflight (engines of TensorRT-LLM cannot be "
        "read; run `inflight build` on their checkpoint)");
  if (header.version != kEngineFormatVersion)
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("engine format version {}, this program reads {}; rebuild it with "
                              "`inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE`{}",
                              header.version, kEngineFormatVersion,
                              header.version > kEngineFormatVersion
                                  ? ", or run the later release that built it"
                                  : ""));
  if (header.header_checksum != HeaderChecksum(header))
    return Corrupt("the header's checksum is wrong");
  if (header.file_bytes != file_bytes)
    return Corrupt(fmt::format("{}: the header says {} bytes, the file has {}",
                               file_bytes < header.file_bytes ? "truncated" : "has grown",
                               header.file_bytes, file_bytes));
  if (header.header_bytes != sizeof(header) || header.table_bytes > kMaxTableBytes ||
      header.data_offset > file_bytes || header.data_offset < sizeof(header) ||
      header.table_bytes > header.data_offset - sizeof(header))
    return InvalidArgument(fmt::format("header: table of {} bytes and data at {} do not fit",
                                       header.table_bytes, header.data_offset));
  return header;
}

Result<EngineTable> Parse(std::span<const std::byte> begin, uint64_t file_bytes) {
  ASSIGN_OR_RETURN(const Header header, ParseHeader(begin, file_bytes));
  if (begin.size() - sizeof(header) < header.table_bytes)
    return Corrupt("truncated: the tensor table is not complete");
  const std::span<const std::byte> encoded = begin.subspan(sizeof(header), header.table_bytes);
  if (XXH3_64bits(encoded.data(), encoded.size()) != header.table_checksum)
    return Corrupt("the tensor table's checksum is wrong");

  EngineTable table;
  table.target =
      std::string(header.target.data(), strnlen(header.target.data(), header.target.size()));
  table.data_offset = header.data_offset;
  table.file_bytes = file_bytes;
  table.checksum = header.table_checksum;
  TableReader reader(encoded);
  for (uint64_t i = 0; i < header.num_tensors; ++i) {
    ASSIGN_OR_RETURN(EngineTensor tensor, DecodeTensor(reader));
    table.tensors.push_back(std::move(tensor));
  }
  if (!reader.at_end()) return InvalidArgument("the tensor table holds more than its tensors");
  RETURN_IF_ERROR(CheckPlacement(table));
  return table;
}

}  // namespace

Result<EngineTable> ParseEngineTable(std::span<const std::byte> begin, uint64_t file_bytes,
                                     std::string_view file) {
  Result<EngineTable> table = Parse(begin, file_bytes);
  if (!table.ok()) return table.status().WithPrefix(file);
  return table;
}

bool IsEngineFile(const std::filesystem::path& path) {
  std::array<char, kMagic.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return begin == kMagic;
}

Result<EngineTable> ReadEngineTable(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ParseEngineTable(file.bytes(), file.bytes().size(), path.string());
}

uint64_t ChunkChecksum(std::span<const std::byte> chunk) {
  return XXH3_64bits(chunk.data(), chunk.size());
}

uint64_t CombineChecksums(std::span<const uint64_t> chunks) {
  return XXH3_64bits(chunks.data(), chunks.size_bytes());
}

uint64_t TensorChecksum(std::span<const std::byte> data) {
  std::vector<uint64_t> chunks;
  for (size_t at = 0; at < data.size(); at += kChecksumChunkBytes)
    chunks.push_back(
        ChunkChecksum(data.subspan(at, std::min(kChecksumChunkBytes, data.size() - at))));
  return CombineChecksums(chunks);
}

Status CompareChecksum(const EngineTensor& tensor, uint64_t found, std::string_view file) {
  if (found == tensor.checksum) return Status::Ok();
  return Corrupt(fmt::format("{}: {}: checksum {:016x}, the table says {:016x}", file, tensor.name,
                             found, tensor.checksum));
}

Result<EngineFileWriter> EngineFileWriter::Create(const std::filesystem::path& path,
                                                  std::string target,
                                                  std::vector<EngineTensor> tensors) {
  CHECK_LE(target.size(), sizeof(Header::target));
  EngineTable table{.target = std::move(target), .tensors = std::move(tensors)};
  uint64_t offset = EngineAlignUp(sizeof(Header) + EncodeTable(table).size());
  table.data_offset = offset;
  for (EngineTensor& tensor : table.tensors) {
    tensor.offset_bytes = offset;
    offset = EngineAlignUp(offset + tensor.num_bytes);
  }
  table.file_bytes = offset;
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  return EngineFileWriter(std::move(file), std::move(table));
}

Status EngineFileWriter::Write(size_t tensor_idx, std::span<const std::byte> data) {
  EngineTensor& tensor = table_.tensors[tensor_idx];
  CHECK_EQ(data.size(), tensor.num_bytes);
  tensor.checksum = TensorChecksum(data);
  is_written_[tensor_idx] = true;
  return file_.WriteAt(tensor.offset_bytes, data);
}

Status EngineFileWriter::Finish() {
  CHECK(std::all_of(is_written_.begin(), is_written_.end(), [](bool written) { return written; }));
  const std::string table = EncodeTable(table_);
  Header header;
  std::memcpy(header.target.data(), table_.target.data(), table_.target.size());
  header.file_bytes = table_.file_bytes;
  header.table_bytes = table.size();
  header.num_tensors = table_.tensors.size();
  header.data_offset = table_.data_offset;
  header.table_checksum = XXH3_64bits(table.data(), table.size());
  header.header_checksum = HeaderChecksum(header);
  RETURN_IF_ERROR(file_.WriteAt(0, std::as_bytes(std::span(&header, 1))));
  RETURN_IF_ERROR(file_.WriteAt(sizeof(header), std::as_bytes(std::span(table))));
  return file_.Commit(table_.file_bytes);
}

}  // namespace inflight::artifact
