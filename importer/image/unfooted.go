package image

import "io"

// Unfooted is a raw disk that comes in order, without the footer of a fixed VHD when it has one.
type Unfooted struct {
	stream io.Reader
	given  int64
	held   []byte // what came last and may be a footer
	ended  bool   // nothing comes behind held
	footed bool

	last [vhdFooterSize]byte     // held, while the stream goes on
	both [2 * vhdFooterSize]byte // held and what follows, for a read that has no room for them
}

// NewUnfooted returns the disk in stream.
func NewUnfooted(stream io.Reader) *Unfooted { return &Unfooted{stream: stream} }

// Footed reports, at the end, whether there was a footer.
func (u *Unfooted) Footed() bool { return u.footed }

// Read holds back what may be a footer until it knows what follows. The stream is read to where its bytes are wanted.
func (u *Unfooted) Read(p []byte) (int, error) {
	for len(p) > 0 && !u.ended {
		if n, err := u.more(p); n > 0 || err != nil {
			return n, err
		}
	}
	n := copy(p, u.held)
	u.held = u.held[n:]
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// more reads once, and gives what cannot be a footer any more.
func (u *Unfooted) more(p []byte) (int, error) {
	to, short := p, len(p) <= vhdFooterSize
	if short {
		to = u.both[:len(u.held)+len(p)]
	}
	copy(to, u.held)
	n, err := u.stream.Read(to[len(u.held):])
	to = to[:len(u.held)+n]
	sure := max(len(to)-vhdFooterSize, 0)
	u.held = append(u.last[:0], to[sure:]...)
	u.given += int64(sure)
	if err == io.EOF { //nolint:errorlint // only io.EOF itself is the stream's end
		err = u.end()
	}
	if short {
		copy(p, to[:sure])
	}
	return sure, err //nolint:wrapcheck // the caller says what it was reading
}

// end finds what stands at the stream's end.
func (u *Unfooted) end() (err error) {
	u.ended = true
	_, u.footed, err = FixedVHD(u.held, u.given+int64(len(u.held)))
	if u.footed {
		u.held = nil
	}
	return err
}
