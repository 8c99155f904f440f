// SPDX-License-Identifier: Apache-2.0
// Any bytes as a page of a listing of each kind of store, as an error of it, or as a hub's list of
// files: an error, or paths that stay below their folder.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "hub/listing.h"
#include "object_store/address.h"
#include "object_store/local_tree.h"
#include "object_store/service.h"

namespace {

using namespace inflight::object_store;  // NOLINT: one function

std::string NoEnvironment(const char*) { return {}; }

void CheckTree(const Listing& listing) {
  for (const char* const prefix : {"", "p"}) {
    const auto tree = ToLocalTree(listing, prefix);
    if (!tree.ok()) continue;
    for (const auto& [path, object] : tree->files) {
      const std::filesystem::path local = path;
      CHECK(local.is_relative());
      CHECK_EQ(local.lexically_normal(), local);
      CHECK(*local.begin() != "..");
    }
    for (const std::string& name : tree->FirstFolders()) (void)tree->Below(name).Id();
  }
}

// The same of a hub's answer.
void CheckHub(const std::string& body) {
  const auto listed = inflight::hub::ParseListing(body);
  if (!listed.ok()) return;
  for (const auto& file : listed->files) CHECK(IsRelativePath(file.path));
  (void)inflight::hub::ChooseFiles(*listed, "Q4_K_M");
}

void CheckPage(const Service& service, const std::string& body) {
  Listing listing;
  const auto next = service.ReadPage(body, listing);
  if (next.ok()) CheckTree(listing);
  (void)service.ErrorOf({.status = 400, .body = body});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto s3 = MakeS3(*ParseAddress("s3://bucket/p"), NoEnvironment);
  static const auto gs = MakeGs(*ParseAddress("gs://bucket/p"), NoEnvironment);
  static const auto as = *MakeAs(*ParseAddress("as://account/bucket/p"), NoEnvironment);
  const std::string body(reinterpret_cast<const char*>(data), size);
  CheckPage(*s3, body);
  CheckPage(*gs, body);
  CheckPage(*as, body);
  CheckHub(body);
  return 0;
}
