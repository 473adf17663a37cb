// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

// As part of the package, which it is in make rollout only, it has stock register scheme
// xds before this package does.
import _ "google.golang.org/grpc/xds"
