// SPDX-License-Identifier: Apache-2.0
// What --deterministic promises, on real models: what a request answers alone, its prompt whole and
// every block computed, is what it answers among others, in chunks, with reused blocks and after
// pauses. Bit for bit.
#pragma once

#include <memory>
#include <string>

#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::golden {

// Requests of each kind alone on one device, and in every other way on another (of the same kind,
// or the same), by the table of operators called `ops`. Among others, some step is of `num_rows`
// rows or more.
void ExpectSameAnswersInEveryWay(const std::shared_ptr<const model::Engine>& engine,
                                 Device& alone_on, Device& together_on, const std::string& ops,
                                 int num_rows);

}  // namespace inflight::golden
