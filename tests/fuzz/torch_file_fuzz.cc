// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of torch.save, as the pickle inside one and as a pickle alone: an error, or
// tensors whose promises hold.
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "artifact/test_zip.h"
#include "artifact/torch_file.h"
#include "base/check.h"

namespace {

// Each tensor has the bytes of its shape, and they may be read. Copies never outgrow the file.
void Check(std::string_view file) {
  const auto parsed = inflight::artifact::ParseTorchFile(std::as_bytes(std::span(file)), "fuzz");
  if (!parsed.ok()) {
    CHECK(!parsed.status().message().empty());
    CHECK_LE(parsed.status().message().size(), size_t{2000});
    return;
  }
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  std::unordered_set<std::string> names;
  size_t gathered = 0;
  for (const auto& tensor : parsed->tensors) {
    CHECK(names.insert(tensor.name).second);
    CHECK_EQ(tensor.data.size(),
             static_cast<size_t>(tensor.shape.num_elements()) * inflight::SizeOf(tensor.dtype));
    const bool is_in_file = tensor.data.data() >= begin && tensor.data.data() < begin + file.size();
    if (is_in_file)
      CHECK_LE(tensor.data.size(), static_cast<size_t>(begin + file.size() - tensor.data.data()));
    else
      gathered += tensor.data.size();
    if (!tensor.data.empty()) {
      const volatile std::byte first = tensor.data.front();
      const volatile std::byte last = tensor.data.back();
      (void)first;
      (void)last;
    }
  }
  CHECK_LE(gathered, file.size());
}

}  // namespace

// The first byte chooses: 'P' (a zip file) or 0x80 (a pickle) and it is a whole file; else a zip
// file is put around the rest, whose second byte says how large storages 0 and 1 are, since chance
// rarely keeps a directory right.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes[0] == 'P' || bytes[0] == '\x80') {
    Check(bytes);
    return 0;
  }
  Check(inflight::artifact::MakeTestZip({{"a/data.pkl", std::string(bytes.substr(2))},
                                         {"a/data/0", std::string(data[1], 'x')},
                                         {"a/data/1", std::string(data[1] / 2, 'y')}}));
  return 0;
}
