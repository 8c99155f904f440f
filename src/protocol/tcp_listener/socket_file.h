// SPDX-License-Identifier: Apache-2.0
// The file of a Unix socket, from its making to the end of its server.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "inflight/status.h"

namespace inflight::tcp_listener {

class SocketFile {
 public:
  // Binds the Unix socket `descriptor` to `path` and listens: the file's owner alone can connect
  // (mode 0600). What a server left that ended without taking its file away is replaced.
  // kInvalidArgument: a path that is too long; kUnavailable: a server answers there, the file is no
  // socket, or the system's reason.
  static Result<std::unique_ptr<SocketFile>> Listen(int descriptor, const std::string& path,
                                                    int backlog);
  // Takes the file away, unless it is another's by now.
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  SocketFile(std::string path, const struct stat& made) : path_(std::move(path)), made_(made) {}

  const std::string path_;
  const struct stat made_;
};

}  // namespace inflight::tcp_listener
