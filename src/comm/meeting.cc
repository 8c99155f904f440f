// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "comm/tcp_group.h"

namespace inflight::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr std::chrono::milliseconds kBetweenChecks{100};
// For a few bytes that fit a socket's buffer.
constexpr std::chrono::seconds kForAnswers{5};

Deadline Soon() { return std::chrono::steady_clock::now() + kForAnswers; }

std::string VersionOf(const Hello& hello) {
  return {hello.version.data(), strnlen(hello.version.data(), hello.version.size())};
}

}  // namespace

Meeting::Meeting(const launch::World& world, const Agreement& agreement, Deadline deadline,
                 const GroupOptions& options)
    : world_(world),
      deadline_(deadline),
      options_(options),
      places_(world.size),
      data_(world.size) {
  hello_.rank = static_cast<uint32_t>(world.rank);
  hello_.size = static_cast<uint32_t>(world.size);
  hello_.hash = agreement.hash;
  agreement.version.copy(hello_.version.data(), hello_.version.size());
}

std::string Meeting::LeaderText() const {
  return fmt::format("rank 0 at {} port {}", world_.leader_address, world_.leader_port);
}

std::vector<int> Meeting::ControlSockets() const {
  std::vector<int> sockets;
  for (const Control& control : controls_)
    if (control.socket.ok()) sockets.push_back(control.socket.get());
  return sockets;
}

// ---- rank 0

std::string Meeting::WhyNot(const Hello& hello, const sockaddr_in6& from) const {
  const std::string who = fmt::format("rank {} from {}", hello.rank, ToText(from));
  if (hello.wire_version != kWireVersion)
    return fmt::format(
        "{} speaks version {} of this protocol, rank 0 version {}: start all ranks "
        "from one build",
        ToText(from), hello.wire_version, kWireVersion);
  if (hello.kind != Hello::kJoin) return who + " has been in another group";
  if (VersionOf(hello) != VersionOf(hello_))
    return fmt::format("{} is of version '{}', rank 0 of '{}': start all ranks from one build", who,
                       VersionOf(hello), VersionOf(hello_));
  if (hello.size != hello_.size)
    return fmt::format("{} is one of {} ranks, rank 0 one of {}", who, hello.size, hello_.size);
  if (hello.rank == 0 || hello.rank >= hello.size)
    return fmt::format("{} must be from 1 to {}", who, hello.size - 1);
  if (hello.hash != hello_.hash)
    // Rank 0's own is told to nobody: it may be a secret.
    return fmt::format("{} has another model or other options than rank 0 (its hash is {:016x})",
                       who, hello.hash);
  if (controls_[hello.rank - 1].socket.ok())
    return fmt::format("{} comes second: {} has that rank", who,
                       ToText(PeerOf(controls_[hello.rank - 1].socket)));
  return {};
}

void Meeting::Refuse(const Descriptor& socket, const std::string& why) {
  const std::string_view text = std::string_view(why).substr(0, kMaxRefusalBytes);
  const Answer answer{.accepted = 0, .bytes = static_cast<uint32_t>(text.size())};
  // Of one who does not read it nothing is lost.
  static_cast<void>(WriteAll(socket, BytesOf(answer), Soon()));
  static_cast<void>(WriteAll(socket, std::as_bytes(std::span(text)), Soon()));
}

void Meeting::Welcome(Arrival arrival) {
  const std::string why = WhyNot(arrival.hello, arrival.from);
  if (!why.empty()) {
    logging::Warning("a rank is refused", {{"because", why}});
    last_refused_ = why;
    return Refuse(arrival.socket, why);
  }
  const int rank = static_cast<int>(arrival.hello.rank);
  controls_[rank - 1].socket = std::move(arrival.socket);
  places_[rank] = arrival.from;
  places_[rank].sin6_port = htons(static_cast<uint16_t>(arrival.hello.port));
}

void Meeting::ForgetTheLost() {
  for (Control& control : controls_) {
    if (!control.socket.ok()) continue;
    const auto notice = control.Read();
    if (!notice.ok() && notice.status().code() == StatusCode::kDeadlineExceeded) continue;
    logging::Warning("a rank has gone before the group was complete", {{"rank", control.rank}});
    control = Control{.rank = control.rank, .socket = {}};
  }
}

// By the deadline somebody was missing.
Status Meeting::GiveUp() {
  std::vector<int> missing;
  for (const Control& control : controls_)
    if (!control.socket.ok()) missing.push_back(control.rank);
  std::string why = fmt::format("of {} ranks these have not joined by the deadline: rank {}",
                                world_.size, fmt::join(missing, ", rank "));
  for (const Control& control : controls_)
    if (control.socket.ok()) Refuse(control.socket, "rank 0 has given up: " + why);
  if (!last_refused_.empty()) why += "; the last that was refused: " + last_refused_;
  return DeadlineExceeded(std::move(why));
}

Status Meeting::Gather(Door& door) {
  for (int rank = 1; rank < world_.size; ++rank)
    controls_.push_back(Control{.rank = rank, .socket = {}});
  const auto has_come = [](const Control& control) { return control.socket.ok(); };
  while (!std::ranges::all_of(controls_, has_come)) {
    const Deadline next_check =
        options_.check ? std::chrono::steady_clock::now() + kBetweenChecks : deadline_;
    ASSIGN_OR_RETURN(auto arrival, door.Wait(ControlSockets(), std::min(deadline_, next_check)));
    if (arrival) {
      Welcome(*std::move(arrival));
      continue;
    }
    ForgetTheLost();
    if (options_.check) RETURN_IF_ERROR(options_.check());
    if (std::chrono::steady_clock::now() >= deadline_) return GiveUp();
  }
  return Status::Ok();
}

Status Meeting::AnswerAll(const Door& door) {
  std::random_device random;
  group_ = (uint64_t{random()} << 32) | random();
  std::vector<Place> members(world_.size);
  members[0] = {.port = static_cast<uint32_t>(door.port()), .at_leader = 1};
  for (int rank = 1; rank < world_.size; ++rank) {
    members[rank].port = ntohs(places_[rank].sin6_port);
    // Loopback of this host is elsewhere another host's: they know this one by the leader's
    // address.
    members[rank].at_leader = IsLoopback(places_[rank]) ? 1 : 0;
    std::memcpy(members[rank].address.data(), &places_[rank].sin6_addr, sizeof(in6_addr));
  }
  const auto table = std::as_bytes(std::span(members));
  const Answer answer{.accepted = 1, .bytes = static_cast<uint32_t>(table.size()), .group = group_};
  for (const Control& control : controls_) {
    Status sent = WriteAll(control.socket, BytesOf(answer), Soon());
    if (sent.ok()) sent = WriteAll(control.socket, table, Soon());
    if (!sent.ok()) return RankIsGone(control.rank, sent.message());
  }
  return Status::Ok();
}

Status Meeting::Lead(Descriptor listener) {
  if (!listener.ok()) {
    auto listening = Listen(world_.leader_address, world_.leader_port);
    if (!listening.ok())
      return Internal(
          fmt::format("leader_port: rank 0 cannot listen on port {} ({}); MASTER_PORT "
                      "sets another for all ranks",
                      world_.leader_port, listening.status().message()));
    listener = *std::move(listening);
  }
  Door door(std::move(listener));
  RETURN_IF_ERROR(Gather(door));
  RETURN_IF_ERROR(AnswerAll(door));
  return Assemble(door);
}

// ---- the others

// kFailedPrecondition: refused. Any other error: nobody answers who is rank 0.
Result<Answer> Meeting::AskOnce(const Door& door) {
  Control control{.rank = 0, .socket = {}};
  const Deadline soon = std::min(deadline_, Soon());
  ASSIGN_OR_RETURN(control.socket, ConnectTo(world_.leader_address, world_.leader_port, soon));
  hello_.port = static_cast<uint32_t>(door.port());
  RETURN_IF_ERROR(WriteAll(control.socket, BytesOf(hello_), soon));
  Answer answer;
  const Status read = ReadAll(control.socket, WritableBytesOf(answer), deadline_);
  if (read.code() == StatusCode::kDeadlineExceeded)
    return read.WithMessage("it is reached, and awaits other ranks");
  RETURN_IF_ERROR(read);
  const size_t table_bytes = sizeof(Place) * static_cast<size_t>(world_.size);
  const bool fits =
      answer.accepted == 1 ? answer.bytes == table_bytes : answer.bytes <= kMaxRefusalBytes;
  if (answer.magic != kMagic || !fits) return Unavailable("what listens there is no rank 0");
  if (answer.accepted != 1) {
    std::string why(answer.bytes, '\0');
    RETURN_IF_ERROR(ReadAll(control.socket, std::as_writable_bytes(std::span(why)), deadline_));
    return FailedPrecondition(std::move(why));
  }
  std::vector<Place> members(world_.size);
  RETURN_IF_ERROR(ReadAll(control.socket, std::as_writable_bytes(std::span(members)), deadline_));
  const sockaddr_in6 leader = PeerOf(control.socket);
  for (int rank = 0; rank < world_.size; ++rank) {
    places_[rank] = leader;
    if (members[rank].at_leader == 0) {
      places_[rank] = {};
      places_[rank].sin6_family = AF_INET6;
      std::memcpy(&places_[rank].sin6_addr, members[rank].address.data(), sizeof(in6_addr));
    }
    places_[rank].sin6_port = htons(static_cast<uint16_t>(members[rank].port));
  }
  controls_.push_back(std::move(control));
  return answer;
}

Status Meeting::AskLeader(const Door& door) {
  while (true) {
    const auto answer = AskOnce(door);
    if (answer.ok()) {
      group_ = answer->group;
      return Status::Ok();
    }
    if (answer.status().code() == StatusCode::kFailedPrecondition)
      return answer.status().WithPrefix(LeaderText());
    if (std::chrono::steady_clock::now() + kBetweenTries >= deadline_)
      return DeadlineExceeded(fmt::format("{} has not answered by the deadline: {}", LeaderText(),
                                          answer.status().message()));
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Status Meeting::ConnectToLower() {
  Hello hello = hello_;
  hello.kind = Hello::kData;
  hello.group = group_;
  for (int rank = 0; rank < world_.rank; ++rank) {
    auto socket = ConnectTo(places_[rank], deadline_);
    Status said = socket.status();
    if (said.ok()) said = WriteAll(*socket, BytesOf(hello), deadline_);
    if (!said.ok())
      return Unavailable(fmt::format("rank {} is not reached at {}: {}", rank,
                                     ToText(places_[rank]), said.message()));
    data_[rank] = *std::move(socket);
  }
  return Status::Ok();
}

Status Meeting::Follow() {
  ASSIGN_OR_RETURN(Descriptor listener, Listen(world_.leader_address, /*port=*/0));
  Door door(std::move(listener));
  RETURN_IF_ERROR(AskLeader(door));
  RETURN_IF_ERROR(ConnectToLower());
  return Assemble(door);
}

// ---- all

bool Meeting::HasAllData() const {
  for (int rank = 0; rank < world_.size; ++rank)
    if (rank != world_.rank && !data_[rank].ok()) return false;
  return true;
}

void Meeting::TakeData(Arrival arrival) {
  const Hello& hello = arrival.hello;
  const bool fits = hello.wire_version == kWireVersion && hello.kind == Hello::kData &&
                    hello.group == group_ && hello.rank > hello_.rank && hello.rank < hello_.size &&
                    !data_[hello.rank].ok();
  if (fits) {
    data_[hello.rank] = std::move(arrival.socket);
    return;
  }
  logging::Warning("who is no rank of this group is turned away",
                   {{"from", ToText(arrival.from)}, {"rank", hello.rank}});
  if (hello.kind == Hello::kJoin) Refuse(arrival.socket, "the group is complete");
}

// Rank 0 awaits kReady of each; the others kGo of rank 0, behind which come notices for the group.
Status Meeting::ReadControls() {
  for (size_t i = 0; i < controls_.size(); ++i) {
    const auto notice = controls_[i].Read();
    if (notice.status().code() == StatusCode::kDeadlineExceeded) continue;
    if (!notice.ok()) {
      Tell({.kind = Notice::kGone, .rank = static_cast<uint32_t>(controls_[i].rank)});
      return RankIsGone(controls_[i].rank, notice.status().message());
    }
    RETURN_IF_ERROR(MeaningOf(*notice, controls_[i].rank));
    ready_[i] = ready_[i] || notice->kind == Notice::kReady || notice->kind == Notice::kGo;
  }
  return Status::Ok();
}

void Meeting::Tell(const Notice& notice) {
  for (const Control& control : controls_)
    static_cast<void>(WriteAll(control.socket, BytesOf(notice), Soon()));
}

Status Meeting::Assemble(Door& door) {
  ready_.assign(controls_.size(), false);
  const std::vector<int> sockets = ControlSockets();
  bool told = world_.rank == 0;
  while (true) {
    if (HasAllData()) {
      if (!told) Tell({.kind = Notice::kReady, .rank = hello_.rank});
      told = true;
      if (std::ranges::count(ready_, false) == 0) break;
    }
    if (std::chrono::steady_clock::now() >= deadline_)
      return DeadlineExceeded("the ranks have not all connected to each other by the deadline");
    ASSIGN_OR_RETURN(auto arrival, door.Wait(sockets, deadline_));
    if (arrival) {
      TakeData(*std::move(arrival));
    } else {
      RETURN_IF_ERROR(ReadControls());
    }
  }
  if (world_.rank == 0) Tell({.kind = Notice::kGo, .rank = 0});
  return Status::Ok();
}

std::unique_ptr<Group> Meeting::MakeGroup() {
  auto watch =
      std::make_unique<Watch>(world_.rank, std::move(controls_), options_.silence, options_.name);
  return std::make_unique<TcpGroup>(world_.rank, std::move(data_), std::move(watch));
}

}  // namespace inflight::comm
