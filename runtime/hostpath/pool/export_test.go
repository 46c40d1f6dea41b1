package pool

// DraftProject is the project whose limit goes with a draft, 0 when there is none.
func (p *Pool) DraftProject(draft string) (uint32, error) {
	record, err := p.draftProject(draft)
	return record.Project, err
}

// AfterStep has f called after each step that a crash does not undo.
func (p *Pool) AfterStep(f func()) { p.stepped = f }
