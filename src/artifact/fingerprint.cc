// SPDX-License-Identifier: Apache-2.0
#include "artifact/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kNumPieces = 17;

bool Counts(const fs::path& path) {
  const std::string type = path.extension().string();
  return type == ".json" || type == ".safetensors" || type == ".bin" || type == ".pt" ||
         type == ".engine";
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// Of `paths`, in their order.
Result<uint64_t> FingerprintOf(const std::vector<fs::path>& paths) {
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    const std::string name = path.filename().string();
    const uint64_t size = file.bytes().size();
    XXH3_64bits_update(state.get(), name.c_str(), name.size() + 1);
    XXH3_64bits_update(state.get(), &size, sizeof size);
    std::vector<std::byte> piece(std::min<uint64_t>(size, kPieceBytes));
    const bool is_small = size <= kNumPieces * kPieceBytes;
    const uint64_t last = size - piece.size();
    for (uint64_t i = 0; i < kNumPieces && size > 0; ++i) {
      const uint64_t at = is_small ? i * kPieceBytes : last / (kNumPieces - 1) * i;
      if (at >= size) break;
      const auto part = file.bytes().subspan(at, std::min<uint64_t>(piece.size(), size - at));
      RETURN_IF_ERROR(file.Read(part, piece.data()));
      XXH3_64bits_update(state.get(), piece.data(), part.size());
    }
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace

Result<uint64_t> Fingerprint(const fs::path& dir) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(dir, error))
    if (Counts(entry.path()) && entry.is_regular_file(error)) paths.push_back(entry.path());
  if (error) return SystemError(dir, "list", error.value());
  std::ranges::sort(paths);
  return FingerprintOf(paths);
}

Result<uint64_t> FileFingerprint(const fs::path& path) { return FingerprintOf({path}); }

}  // namespace inflight::artifact
