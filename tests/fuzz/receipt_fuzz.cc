// SPDX-License-Identifier: Apache-2.0
// Any text as what carries receipts, and as one: an error, or receipts that are written in one way
// alone and that nobody finds changed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "receipts/receipt.h"
#include "receipts/verify.h"

namespace {

using namespace inflight::receipts;  // NOLINT: a fuzzer's main file

void CheckReceipt(std::string_view text) {
  const auto receipt = ParseReceipt(text);
  if (!receipt.ok()) {
    CHECK(!receipt.status().message().empty());
    return;
  }
  (void)ChangedParts(*receipt);
  CHECK_GE(KvTokensOf(*receipt), 0);
  const std::string written = ReceiptText(*receipt);
  const auto again = ParseReceipt(written);
  CHECK_EQ(again.status().ToString(), "OK");
  CHECK(ReceiptText(*again) == written);
  CHECK(ChangedParts(*again).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckReceipt(text);
  const auto found = FindReceipts(text);
  if (!found.ok()) {
    CHECK(!found.status().message().empty());
    return 0;
  }
  for (const std::string& receipt : *found) CheckReceipt(receipt);
  return 0;
}
