// SPDX-License-Identifier: Apache-2.0
#include "loader/rank_order.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "inflight/version.h"
#include "loader/leader_messages.h"

namespace inflight {
namespace {

using nlohmann::json;

}  // namespace

std::string ToText(const RankOrder& order) {
  const launch::World& world = order.world;
  return json({{"model", order.model},
               {"rank", world.rank},
               {"size", world.size},
               {"local_size", world.local_size},
               {"address", world.leader_address},
               {"port", world.leader_port},
               {"secret", order.secret},
               {"device", order.device},
               {"num_threads", order.num_threads},
               {"log",
                {{"info", order.log.info},
                 {"warning", order.log.warning},
                 {"error", order.log.error},
                 {"verbose", order.log.verbose_level},
                 {"format", logging::FormatName(order.log.format)},
                 {"file", order.log.file}}}})
      .dump();
}

Result<RankOrder> ParseRankOrder(std::string_view text) {
  try {
    const json told = json::parse(text);
    RankOrder order;
    order.model = told.at("model");
    order.world = {.rank = told.at("rank"),
                   .size = told.at("size"),
                   .local_size = told.at("local_size"),
                   .leader_address = told.at("address"),
                   .leader_port = told.at("port"),
                   .launcher = "the server"};
    order.secret = told.at("secret");
    order.device = told.at("device");
    order.num_threads = told.at("num_threads");
    const json& log = told.at("log");
    order.log.info = log.at("info");
    order.log.warning = log.at("warning");
    order.log.error = log.at("error");
    order.log.verbose_level = log.at("verbose");
    order.log.format = logging::FindFormat(log.at("format").get<std::string>())
                           .value_or(logging::Format::kDefault);
    order.log.file = log.at("file");
    return order;
  } catch (const json::exception& error) {
    return InvalidArgument(std::string("no order to be a rank: ") + error.what());
  }
}

Result<std::shared_ptr<RankProcesses>> JoinAsOrdered(const RankOrder& order,
                                                     comm::GroupOptions options) {
  constexpr std::chrono::minutes kPatience{1};
  options.name = "model " + order.model;
  auto group = comm::Group::Join(order.world, {.version = kVersion, .hash = order.secret},
                                 std::chrono::steady_clock::now() + kPatience, options);
  if (!group.ok()) return group.status().WithPrefix(options.name);
  return std::make_shared<RankProcesses>(*std::move(group), order.world.local_size);
}

Status ComputeAsOrdered(comm::Group& launched, const OpenOptions& options,
                        const std::function<bool()>& is_asked_to_stop) {
  LeaderMessages leader(launched, is_asked_to_stop);
  while (true) {
    const auto message = leader.Next();
    if (message.status().code() == StatusCode::kCancelled) return Status::Ok();
    Status done = message.status();
    if (done.ok()) {
      ASSIGN_OR_RETURN(const RankOrder order, ParseRankOrder(TextOf(*message)));
      const auto processes = JoinAsOrdered(order);
      const Status computed =
          processes.ok() ? (*processes)->Follow(options, is_asked_to_stop) : processes.status();
      if (!computed.ok())
        logging::Error("this process computes for a model no more",
                       {{"status", computed.ToString()}});
      continue;
    }
    launched.Abort(done);  // else the others would think that this process left
    return done;
  }
}

}  // namespace inflight
