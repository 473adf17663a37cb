// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package peers measures other libraries that implement parts of this project, for comparison:
// consistent hashing by serialx/hashring, by groupcache and by dgryski/go-jump, and the LB
// policies that go-kratos registers with gRPC. It is a separate module so that other programs
// do not depend on them. Names are as in package bench.
package peers
