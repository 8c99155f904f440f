// SPDX-License-Identifier: Apache-2.0
// What lies between a client's socket and a server's: carries bytes when, and as many as, the
// simulation says, and can be cut.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/descriptor.h"

namespace inflight::testing {

class Wire {
 public:
  Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Connected sockets; each is its taker's, and is taken once.
  Descriptor TakeClientEnd() { return std::move(client_end_); }
  Descriptor TakeServerEnd() { return std::move(server_end_); }

  // At most so many bytes each way, and the end where one side has closed.
  void Carry(size_t to_server, size_t to_client);
  // The other side of both ends has gone, with what was on its way.
  void Cut();
  bool is_cut() const { return is_cut_; }
  // How many bytes wait for the server.
  size_t num_for_server() const { return to_server_.size(); }

 private:
  // Reads into `bytes` what fits; false: that side has closed.
  static bool Fill(int socket, std::string& bytes);
  static void Drain(int socket, std::string& bytes, size_t at_most);

  Descriptor client_end_, server_end_;
  Descriptor client_side_, server_side_;  // ours
  std::string to_server_, to_client_;
  bool has_client_ended_ = false, has_server_ended_ = false;  // sends no more
  bool is_cut_ = false;
};

}  // namespace inflight::testing
