package pool

// lostAndFound is the folder of ext4 for what its check finds, where a pool is a whole file system.
const lostAndFound = "lost+found"

// Inventory is what a pool has.
type Inventory struct {
	// Volumes and Snapshots are how many there are.
	Volumes, Snapshots int
	// Promised is the sizes of the volumes added up, in bytes, as far as they are known.
	Promised int64
}

// Inventory counts what the pool has; what cannot be read of it is no volume of ours.
func (p *Pool) Inventory() (Inventory, error) {
	var found Inventory
	entries, err := p.list(volumes.data)
	if err != nil {
		return found, err
	}
	for _, entry := range entries {
		if !validName.MatchString(entry) || entry == lostAndFound {
			continue
		}
		record, err := p.Volume(entry)
		if err != nil {
			continue // deleted meanwhile, or something of another
		}
		found.Volumes++
		found.Promised += record.Capacity
	}
	kept, err := p.list(snapshots.data)
	found.Snapshots = len(kept)
	return found, err
}
