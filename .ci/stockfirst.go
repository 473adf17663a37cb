// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

// This file is part of the package in make rollout only. It makes grpc/xds register scheme xds
// before this package does.
import _ "google.golang.org/grpc/xds"
