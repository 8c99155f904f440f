// SPDX-License-Identifier: Apache-2.0
// A hub of Hugging Face over HTTP: what a model has, and the bytes of its files.
//
//   GET /api/models/{repo}/revision/{revision}?blobs=true   the files, with sizes and digests
//   GET /{repo}/resolve/{commit}/{path}                     a file; mostly a redirection
//
// Variables, as the hub's own library reads them: HF_ENDPOINT; HF_TOKEN, else the file
// HF_TOKEN_PATH, else "token" in $HF_HOME; HF_HUB_OFFLINE. A token goes to the hub alone, not to
// where it sends us. Proxies are libcurl's.
// Threads: one at a time; each thread has a client of its own.
// Sources: https://huggingface.co/docs/hub/api; huggingface_hub's guides of downloads and of
// environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "artifact/hub_cache.h"
#include "hub/listing.h"
#include "object_store/http_client.h"

namespace inflight::hub {

struct HubOptions {
  artifact::Environment environment = artifact::ProcessEnvironment();
  int num_connections = 4;
  int max_attempts = 5;      // without a byte of progress
  int first_delay_ms = 500;  // before the second attempt; twice that before the next, 10 s at most
  int slow_s = 30;           // as object_store::HttpLimits
  std::function<void(uint64_t done, uint64_t all)> progress;  // in bytes, from any thread
};

class HubClient {
 public:
  // kFailedPrecondition where HF_HUB_OFFLINE says so or libcurl is not there; kInvalidArgument:
  // HF_ENDPOINT is no address.
  static Result<std::unique_ptr<HubClient>> Make(const HubOptions& options);

  Result<HubListing> List(const artifact::HubId& id);
  // Fills size and digest of a file whose listing has none, by the headers of its answer.
  Status Describe(const artifact::HubId& id, const std::string& commit, HubFile& file);

  // Bytes of a file from `begin` on go to `take`. Where the hub begins anew, `restart` is called
  // first. Attempts are repeated; what was taken is not asked for again.
  struct Receiver {
    std::function<Status(std::string_view)> take;
    std::function<Status()> restart;
  };
  Status Read(const artifact::HubId& id, const std::string& commit, const HubFile& file,
              uint64_t begin, const Receiver& receiver);

 private:
  HubClient(std::unique_ptr<object_store::HttpClient> http, const HubOptions& options);

  struct Asked;
  // Sends, follows redirections where it is told to, and tries again what may pass by.
  Result<object_store::HttpResponse> Get(const Asked& asked);
  Result<object_store::HttpResponse> GetOnce(const Asked& asked);
  std::string UrlOf(const artifact::HubId& id, const std::string& commit,
                    const HubFile& file) const;

  const std::unique_ptr<object_store::HttpClient> http_;
  const HubOptions options_;
  std::string endpoint_;  // "https://huggingface.co", without a slash at its end
  std::string token_;
};

}  // namespace inflight::hub
