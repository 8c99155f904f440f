// SPDX-License-Identifier: Apache-2.0
#include "object_store/needed_files.h"

#include <string>

#include "base/file.h"
#include "object_store/credential_sources.h"
#include "object_store/json_text.h"

namespace inflight::object_store {

namespace fs = std::filesystem;

namespace {

// The files that the entries "gs" name.
void AddGoogleFiles(const fs::path& cloud_file, std::vector<fs::path>& files) {
  const auto text = ReadFile(cloud_file, kMaxCredentialBytes);
  if (!text.ok()) return;
  const auto document = ParseObject(*text, "");
  if (!document.ok()) return;
  const auto entries = document->find("gs");
  if (entries == document->end() || !entries->is_object()) return;
  for (const auto& entry : *entries)
    if (entry.is_string()) files.emplace_back(entry.get<std::string>());
}

}  // namespace

std::vector<fs::path> NeededFiles(const Environment& environment) {
  std::vector<fs::path> files;
  for (const char* const name :
       {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE", "SSL_CERT_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "TRITON_CLOUD_CREDENTIAL_PATH"}) {
    if (const std::string file = environment(name); !file.empty()) files.emplace_back(file);
  }
  for (const char* const name :
       {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}) {
    const fs::path file = environment(name);
    if (!file.empty()) files.push_back(file.has_parent_path() ? file.parent_path() : ".");
  }
  if (const fs::path home = environment("HOME"); !home.empty()) {
    files.push_back(home / ".aws");
    files.push_back(home / ".config/gcloud");
  }
  if (const std::string file = environment("TRITON_CLOUD_CREDENTIAL_PATH"); !file.empty())
    AddGoogleFiles(file, files);
  return files;
}

}  // namespace inflight::object_store
