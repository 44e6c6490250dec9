/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/filelock"
	"github.com/hawser-io/hawser/test/csiloop/loopdev"
)

// Published returns how the volume is published to the node. Its error is the reason why the node may not use it.
func (s *Store) Published(id, node string) (Publication, error) {
	volume, err := s.Get(id)
	if err != nil {
		return Publication{}, err
	}
	publication, ok := volume.Publications[node]
	if !ok {
		return Publication{}, status.Errorf(codes.FailedPrecondition, "volume %q is not published to node %q", id, node)
	}
	return publication, nil
}

// Attach returns the node's loop device for a volume that is published to it, and whether Attach created it. It holds
// the store's lock. No Unpublish can therefore run between opening the link and creating the device, which it would
// have to cut off.
func (s *Store) Attach(id, node string, readOnly bool) (device loopdev.Device, made bool, err error) {
	err = s.locked(func() error {
		if _, err := s.Published(id, node); err != nil {
			return err
		}
		link := s.Link(id, node)
		devices, err := loopdev.Find(link)
		if err != nil {
			return err
		}
		for _, found := range devices {
			if !found.Unlinked && found.ReadOnly == readOnly {
				device = found
				return nil
			}
		}
		device, err = attach(link, readOnly)
		made = err == nil
		return err
	})
	return device, made, err
}

func attach(link string, readOnly bool) (device loopdev.Device, err error) {
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	file, err := os.OpenFile(link, flag, 0)
	if err != nil {
		return device, fmt.Errorf("opening the node's link: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return loopdev.Attach(file, readOnly)
}

func (s *Store) formatMark(id string) string {
	return filepath.Join(s.dir, "volumes", id+".formatting")
}

// MarkFormatting records, before mkfs, that the volume now contains an incomplete filesystem.
func (s *Store) MarkFormatting(id string) error {
	return filelock.WriteAtomic(s.formatMark(id), nil)
}

// Formatting reports whether a mkfs of the volume began and did not complete. The volume then contains no data.
func (s *Store) Formatting(id string) (bool, error) {
	_, err := os.Stat(s.formatMark(id))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading format mark: %w", err)
	}
	return true, nil
}

// FormattingDone removes the mark.
func (s *Store) FormattingDone(id string) error { return remove(s.formatMark(id)) }
