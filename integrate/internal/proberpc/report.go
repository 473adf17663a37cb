// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package proberpc has the message of a probe's answer, for servers (package probe) and clients.
package proberpc

import "fmt"

// A Report is the load of a server. The tags make it the protobuf message of package probe's
// documentation; gRPC's codec accepts it.
type Report struct {
	// InFlight is the number of unary RPCs that the server has in flight.
	InFlight uint32 `protobuf:"varint,1,opt,name=in_flight,json=inFlight,proto3"`
	// LatencyNs is the latency, in nanoseconds, of RPCs that found about as many in flight; 0
	// means unknown.
	LatencyNs uint64 `protobuf:"varint,2,opt,name=latency_ns,json=latencyNs,proto3"`
	// FailingPPM is the fraction of the recent RPCs that failed, in millionths.
	FailingPPM uint32 `protobuf:"varint,3,opt,name=failing_ppm,json=failingPpm,proto3"`
	// Weight is the relative capacity; 0 means 1.
	Weight float64 `protobuf:"fixed64,4,opt,name=weight,proto3"`
	// GoingAway means that the server is about to stop.
	GoingAway bool `protobuf:"varint,5,opt,name=going_away,json=goingAway,proto3"`
}

// Reset makes r the empty report.
func (r *Report) Reset() { *r = Report{} }

// String returns the report for logs.
func (r *Report) String() string { return fmt.Sprintf("%+v", *r) }

// ProtoMessage marks a protobuf message.
func (*Report) ProtoMessage() {}

// XXX_MessageName returns the message's full name. protobuf-go calls the method with this name
// for messages without a descriptor.
func (*Report) XXX_MessageName() string { return "xdslb.probe.v1.Report" }
