// Package importschedule reads when a DataImportCron looks for a new image. Admission asks
// whether it can be kept, virt-controller keeps it.
package importschedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Least is the least time between two looks.
const Least = time.Minute

// Schedule tells the times, in UTC.
type Schedule struct{ times cron.Schedule }

// Parse reads five fields as of cron, or a word such as @daily or @every 2h. Its errors say what to write.
func Parse(text string) (Schedule, error) {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return Schedule{}, errors.New("times are in UTC; leave the time zone out")
	}
	times, err := cron.ParseStandard(text)
	if err != nil {
		return Schedule{}, fmt.Errorf("write five fields as of cron, such as 30 4 * * *, or @daily, or @every 2h: %w", err)
	}
	if every, is := times.(cron.ConstantDelaySchedule); is && every.Delay < Least {
		return Schedule{}, fmt.Errorf("%s is too often; once a minute is the most", every.Delay)
	}
	s := Schedule{times}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return Schedule{}, errors.New("such a day never comes; write one that does")
	}
	return s, nil
}

// Next is the first time after t.
func (s Schedule) Next(t time.Time) time.Time { return s.times.Next(t.UTC()) }
