// SPDX-License-Identifier: Apache-2.0
#include "artifact/npy.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "artifact/sizes.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kMaxNpyRank = 4;

std::string_view Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// What stands behind `'key':` up to one of `ends`.
std::optional<std::string_view> NpyValue(std::string_view header, std::string_view key,
                                         std::string_view ends) {
  const size_t at = header.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos) return std::nullopt;
  const size_t begin = at + key.size() + 3;
  const size_t end = header.find_first_of(ends, begin);
  if (end == std::string_view::npos) return std::nullopt;
  return Stripped(header.substr(begin, end - begin));
}

std::optional<DType> NpyDType(std::string_view descr) {
  if (descr == "'<f2'") return DType::kF16;
  if (descr == "'<f4'") return DType::kF32;
  if (descr == "'<f8'") return DType::kF64;
  return std::nullopt;
}

// "(2, 3" or "(4,"
std::optional<std::vector<int64_t>> NpyDims(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  std::vector<int64_t> shape;
  while (!(text = Stripped(text)).empty()) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    constexpr int64_t kMost = int64_t{1} << 31;
    if (error != std::errc() || dim < 0 || dim > kMost || shape.size() == kMaxNpyRank)
      return std::nullopt;
    shape.push_back(dim);
    text = Stripped(text.substr(static_cast<size_t>(end - text.data())));
    if (text.starts_with(',')) {
      text.remove_prefix(1);
    } else if (!text.empty()) {
      return std::nullopt;
    }
  }
  return shape;
}

}  // namespace

Result<StoredTensor> ParseNpy(std::span<const std::byte> bytes, std::string_view file) {
  const auto truncated = [&] { return DataLoss(fmt::format("{}: ends too early", file)); };
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(fmt::format("{}: {}", file, what));
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t num_magic = std::min(text.size(), kNpyMagic.size());
  if (text.substr(0, num_magic) != kNpyMagic.substr(0, num_magic)) return wrong("is no .npy file");
  if (text.size() < kNpyMagic.size() + 2) return truncated();
  const auto major = static_cast<uint8_t>(text[kNpyMagic.size()]);
  if (major < 1 || major > 3) return wrong(fmt::format("got version {}, 1 to 3 are read", major));
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t length_at = kNpyMagic.size() + 2;
  if (text.size() < length_at + length_bytes) return truncated();
  uint32_t length = 0;
  std::memcpy(&length, text.data() + length_at, length_bytes);
  const size_t header_at = length_at + length_bytes;
  if (text.size() - header_at < length) return truncated();
  const std::string_view header = text.substr(header_at, length);

  const auto descr = NpyValue(header, "descr", ",}");
  const auto order = NpyValue(header, "fortran_order", ",}");
  const auto shape_text = NpyValue(header, "shape", ")");
  if (!descr || !order || !shape_text)
    return wrong("its header lacks descr, fortran_order or shape");
  StoredTensor tensor;
  const auto dtype = NpyDType(*descr);
  if (!dtype) return wrong(fmt::format("descr: got {}, '<f2', '<f4' and '<f8' are read", *descr));
  if (*order != "False") return wrong("fortran_order: only arrays in C order are read");
  const auto dims = NpyDims(*shape_text);
  if (!dims || dims->empty())
    return wrong(
        fmt::format("shape: got {}), 1 to {} dimensions are read", *shape_text, kMaxNpyRank));
  tensor.dtype = *dtype;
  const Result<Shape> shape = MakeShape(*dims);
  if (!shape.ok()) return wrong(shape.status().message());
  tensor.shape = *shape;
  const std::span<const std::byte> data = bytes.subspan(header_at + length);
  const Result<uint64_t> needed = ByteSize(tensor.dtype, tensor.shape);
  if (!needed.ok()) return wrong(needed.status().message());
  if (*needed > data.size()) return truncated();
  if (*needed < data.size()) return wrong("has more bytes than its shape");
  tensor.data = data;
  return tensor;
}

}  // namespace inflight::artifact
