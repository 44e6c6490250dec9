/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

const multiNode = "MULTI_NODE_"

func nodesOf(volume Volume) []string {
	return slices.Sorted(maps.Keys(volume.Publications))
}

// mayPublish decides on a publication. attached is how many other volumes the node has.
func mayPublish(volume Volume, node Node, attached int64, want Publication) error {
	if have, ok := volume.Publications[node.ID]; ok {
		if have != want {
			return status.Errorf(codes.AlreadyExists, "volume %q is published to node %q as %+v, not as %+v",
				volume.ID, node.ID, have, want)
		}
		return nil
	}
	for _, other := range nodesOf(volume) {
		have := volume.Publications[other].AccessMode
		if have != want.AccessMode || !strings.HasPrefix(have, multiNode) {
			return status.Errorf(codes.FailedPrecondition, "volume %q is published to node %q as %s, so not to %q as %s",
				volume.ID, other, have, node.ID, want.AccessMode)
		}
	}
	if node.MaxVolumes > 0 && attached >= node.MaxVolumes {
		return status.Errorf(codes.ResourceExhausted, "node %q has %d volumes, its limit", node.ID, attached)
	}
	return nil
}

// Publish makes the volume reachable for the node, through the link that it returns.
func (s *Store) Publish(id, nodeID string, want Publication) (string, error) {
	err := s.locked(func() error {
		volume, err := s.Get(id)
		if err != nil {
			return err
		}
		node, err := s.node(nodeID)
		if err != nil {
			return err
		}
		attached, err := s.attachedTo(nodeID, id)
		if err != nil {
			return err
		}
		if err := mayPublish(volume, node, attached, want); err != nil {
			return err
		}
		if _, ok := volume.Publications[nodeID]; !ok {
			if volume.Publications == nil {
				volume.Publications = map[string]Publication{}
			}
			volume.Publications[nodeID] = want
			if err := s.put(volume); err != nil {
				return err
			}
		}
		return s.link(id, nodeID)
	})
	return s.Link(id, nodeID), err
}

// attachedTo counts the volumes of the node, except one.
func (s *Store) attachedTo(node, except string) (int64, error) {
	entries, err := os.ReadDir(filepath.Dir(s.Link(except, node)))
	if err != nil {
		return 0, fmt.Errorf("listing the volumes of node %s: %w", node, err)
	}
	var count int64
	for _, entry := range entries {
		if entry.Name() != filepath.Base(s.Link(except, node)) {
			count++
		}
	}
	return count, nil
}

// link gives the node a link to the volume's present data. A link to other data is from an interrupted cut-off.
func (s *Store) link(id, node string) error {
	same, err := sameFile(s.Link(id, node), s.image(id))
	if err != nil || same {
		return err
	}
	if err := remove(s.Link(id, node)); err != nil {
		return err
	}
	if err := os.Link(s.image(id), s.Link(id, node)); err != nil {
		return fmt.Errorf("linking the volume to the node: %w", err)
	}
	return nil
}

func sameFile(a, b string) (bool, error) {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	for _, err := range []error{errA, errB} {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("comparing files: %w", err)
		}
	}
	return errA == nil && errB == nil && os.SameFile(infoA, infoB), nil
}

// Unpublish removes the volume from the node, even if the node still uses it. Without a node it removes it from all.
func (s *Store) Unpublish(ctx context.Context, id, node string) error {
	return s.locked(func() error {
		volume, err := s.Get(id)
		if status.Code(err) == codes.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		nodes := []string{node}
		if node == "" {
			nodes = nodesOf(volume)
		}
		for _, node := range nodes {
			if _, ok := volume.Publications[node]; !ok {
				continue
			}
			if err := s.cutOff(ctx, volume, node); err != nil {
				return err
			}
			delete(volume.Publications, node)
			if err := s.put(volume); err != nil {
				return err
			}
		}
		return nil
	})
}

// cutOff prevents that any request of the node reaches the volume. The loop device of the node loses its
// capacity, so that none of its requests can be half done. Then the data moves to a new inode. The device keeps
// the old one, which has no name any more. If other nodes share the inode, only the capacity is removed.
func (s *Store) cutOff(ctx context.Context, volume Volume, node string) error {
	link := s.Link(volume.ID, node)
	shared, err := sameFile(link, s.image(volume.ID))
	if err != nil {
		return err
	}
	devices, err := loopdev.Find(link)
	if err != nil {
		return err
	}
	writers := slices.DeleteFunc(devices, func(d loopdev.Device) bool { return d.ReadOnly || d.Unlinked })
	if shared && len(writers) > 0 {
		severed := severAll(writers)
		alone := len(volume.Publications) == 1
		if !alone && severed != nil {
			return fmt.Errorf("cutting off node %s: %w", node, severed)
		}
		if alone {
			if err := s.moveData(ctx, volume.ID); err != nil {
				return err
			}
		}
	}
	return remove(link)
}

func severAll(devices []loopdev.Device) error {
	var errs []error
	for _, device := range devices {
		errs = append(errs, device.Sever())
	}
	return errors.Join(errs...)
}

// maxCopies limits the copies of data that changes during the copy. That happens only on kernels that cannot sever a
// mounted device.
const maxCopies = 10

// moveData replaces the volume's inode with a copy.
func (s *Store) moveData(ctx context.Context, id string) error {
	image, copied := s.image(id), s.image(id)+".new"
	for range maxCopies {
		before, err := os.Stat(image)
		if err != nil {
			return fmt.Errorf("reading data file: %w", err)
		}
		out, err := exec.CommandContext(ctx, "cp", "--reflink=auto", "--sparse=always", image, copied).CombinedOutput()
		if err != nil {
			return fmt.Errorf("copying data file: %w: %s", err, out)
		}
		after, err := os.Stat(image)
		if err != nil {
			return fmt.Errorf("reading data file: %w", err)
		}
		if before.ModTime().Equal(after.ModTime()) {
			return os.Rename(copied, image)
		}
	}
	return status.Errorf(codes.Aborted, "volume %q changes faster than it can be copied", id)
}
