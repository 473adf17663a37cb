// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/fakegrpc"
)

// newBalancerKernel returns the kernel of a balancer in gRPC's registry, on a fake channel: the
// balancer and its picker are real, connections are not. It is for balancers that do not read
// the time, which is simulated here.
func newBalancerKernel(policy, config string) NewKernel {
	return func(f *Fleet, servers []*Server, rng *rand.Rand, _ func() time.Duration) (Kernel, error) {
		k := &balancerKernel{}
		var addrs []string
		for i := range servers {
			addrs = append(addrs, kernelAddr(i).String())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for range f.Clients {
			s := fakegrpc.New(nil)
			k.channels = append(k.channels, s)
			if err := s.Start(policy, config, addrs); err != nil {
				k.close()
				return nil, err
			}
			p, err := s.Wait(ctx, len(servers), 0)
			if err != nil {
				k.close()
				return nil, err
			}
			// A fake channel does not assign servers to SubConns. Any assignment is valid,
			// since the balancer does not know it either.
			k.clients = append(k.clients, &balancerClient{picker: p, order: rng.Perm(len(servers)), servers: map[balancer.SubConn]int{}})
		}
		return k, nil
	}
}

func kernelAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

type balancerKernel struct {
	channels []*fakegrpc.Channel
	clients  []*balancerClient
}

type balancerClient struct {
	picker  balancer.Picker
	servers map[balancer.SubConn]int
	order   []int // servers without a SubConn
}

// Pick implements Kernel.
func (k *balancerKernel) Pick(client int) (int, func(bool)) {
	c := k.clients[client]
	r, err := c.picker.Pick(balancer.PickInfo{FullMethodName: method, Ctx: context.Background()})
	if err != nil {
		panic(fmt.Sprintf("arena: all SubConns are READY, but a pick fails: %v", err))
	}
	server, ok := c.servers[r.SubConn]
	if !ok {
		server = c.order[0]
		c.order = c.order[1:]
		c.servers[r.SubConn] = server
	}
	if r.Done == nil {
		return server, nil
	}
	return server, func(failed bool) {
		info := balancer.DoneInfo{BytesSent: true, BytesReceived: true}
		if failed {
			info.Err = context.DeadlineExceeded
		}
		r.Done(info)
	}
}

func (k *balancerKernel) close() {
	for _, s := range k.channels {
		s.Close()
	}
}
