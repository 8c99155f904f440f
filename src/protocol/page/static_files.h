// SPDX-License-Identifier: Apache-2.0
// Answers of files that never change while the program runs: by ETag, in gzip, without copies.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "protocol/http_listener/http_message.h"

namespace inflight::page {

// Threads: thread-safe.
class StaticFiles {
 public:
  StaticFiles();

  // 200, or 304 where the client has it; unset: there is no such file.
  std::optional<http_listener::HttpResponse> Find(std::string_view name,
                                                  const http_listener::HttpRequest& request);

 private:
  struct File {
    File(std::string_view bytes, std::string etag, std::string_view content_type)
        : bytes(bytes), etag(std::move(etag)), content_type(content_type) {}

    const std::string_view bytes;
    const std::string etag;  // without quotes
    const std::string_view content_type;
    std::once_flag once;
    std::string gzip;  // made when it is first asked for
  };

  std::map<std::string_view, File> files_;
};

}  // namespace inflight::page
