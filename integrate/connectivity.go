// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// kernelState returns a state of gRPC's in the kernel's terms.
func kernelState(s connectivity.State) picker.Connectivity {
	switch s {
	case connectivity.Ready:
		return picker.Ready
	case connectivity.Idle:
		return picker.Idle
	case connectivity.Connecting:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// grpcState returns a state of the kernel's in gRPC's terms.
func grpcState(s picker.Connectivity) connectivity.State {
	return [...]connectivity.State{
		picker.Idle: connectivity.Idle, picker.Connecting: connectivity.Connecting,
		picker.Ready: connectivity.Ready, picker.TransientFailure: connectivity.TransientFailure,
	}[s]
}

// stateName returns gRPC's name of a state.
func stateName(s picker.Connectivity) string {
	return grpcState(s).String()
}
