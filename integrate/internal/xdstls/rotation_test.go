// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
)

// writeOrders are all orders of roots, certificate and key, that of Istio's agent first,
// which writes the key before the certificate.
var writeOrders = [][3]int{{2, 1, 0}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}}

// load makes RPCs at a rate, and counts them.
type load struct {
	made, failed atomic.Int64
	server       atomic.Value // the latest server's certificate, []byte
	stop         func()
}

// A machine that is too busy for perSecond has maxInFlight of them, which is less than the
// circuit breaker allows, and makes as many as it can.
const perSecond, maxInFlight = 1000, 256

func startLoad(t *testing.T, cc *grpc.ClientConn) *load {
	l, done, inFlight := &load{}, make(chan struct{}), make(chan struct{}, maxInFlight)
	var rpcs, ticks sync.WaitGroup
	ticks.Go(func() {
		for start := time.Now(); ; {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			for due := int64(time.Since(start) * perSecond / time.Second); l.made.Load() < due; {
				l.made.Add(1)
				inFlight <- struct{}{}
				rpcs.Go(func() {
					defer func() { <-inFlight }()
					var p peer.Peer
					if err := call(cc, grpc.Peer(&p)); err != nil {
						l.failed.Add(1)
						t.Error(err)
						return
					}
					l.server.Store(p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Raw)
				})
			}
		}
	})
	l.stop = func() {
		close(done)
		ticks.Wait()
		rpcs.Wait()
	}
	return l
}

// TestRotationUnderLoad (A29) checks that no RPC fails while CA, certificate and key are
// replaced on both sides, one file after the other in every order, while the server closes its
// connections repeatedly and 1000 RPCs are made per second, if the machine is fast enough. The
// roots of each side are the previous, the current and the next ones, as required for replacing
// a CA.
//
// It sleeps: both sides read the files periodically, without notification. Files and sockets do
// not work in a bubble.
func TestRotationUnderLoad(t *testing.T) {
	rounds, pause := len(writeOrders), 40*time.Millisecond
	if testing.Short() {
		rounds, pause = 2, 20*time.Millisecond
	}
	cas := []*tlstest.CA{tlstest.NewCA(t, "ca")}
	m := newMesh(t, cas[0], grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: time.Minute}))
	m.set(common(san("spiffe://td.test/server")))
	for i := range rounds + 1 {
		cas = append(cas, tlstest.NewCA(t, fmt.Sprint("ca", i)))
	}
	for _, files := range []tlstest.Files{m.files, m.serverFiles} {
		tlstest.Write(t, files.CA, append(bytes.Clone(cas[0].PEM), cas[1].PEM...))
	}
	letLook()
	cc := m.dial(newCredentials(t))
	kit.Must(t, call(cc, grpc.WaitForReady(true)))
	l := startLoad(t, cc)
	start := time.Now()
	for i := range rounds {
		roots := slices.Concat(cas[i].PEM, cas[i+1].PEM, cas[i+2].PEM)
		id := fmt.Sprint("spiffe://td.test/client", i)
		client, server := cas[i+1].Issue(tlstest.Names{URIs: []string{id}}), cas[i+1].Issue(tlstest.Names{URIs: []string{"spiffe://td.test/server"}})
		for k := range 3 {
			of, and := writeOrders[i][k], writeOrders[len(writeOrders)-1-i][k]
			tlstest.Write(t, [3]string{m.files.CA, m.files.Cert, m.files.Key}[of], [3][]byte{roots, client.Cert, client.Key}[of])
			time.Sleep(pause / 2)
			tlstest.Write(t, [3]string{m.serverFiles.CA, m.serverFiles.Cert, m.serverFiles.Key}[and], [3][]byte{roots, server.Cert, server.Key}[and])
			time.Sleep(pause / 2)
		}
		for end := time.Now().Add(time.Minute); m.client.Load() != id || !bytes.Equal(l.server.Load().([]byte), server.TLS.Certificate[0]); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the server knows the client as %v, and the client sees the new server: %v", m.client.Load(), bytes.Equal(l.server.Load().([]byte), server.TLS.Certificate[0]))
			}
		}
		letLook() // so that both have the latest roots
	}
	l.stop()
	t.Logf("%d RPCs, %.0f per second, %d failed, %d rounds", l.made.Load(), float64(l.made.Load())/time.Since(start).Seconds(), l.failed.Load(), rounds)
}

// letLook has client and server look at their files many times, though the process stand still
// for a while in between.
func letLook() {
	for range 10 {
		time.Sleep(50 * time.Millisecond)
	}
}
