	switch (t->back) {
	default: Uerror("bad return move");
	case  0: goto R999; /* nothing to undo */

		 /* PROC :init: */

	case 3: // STATE 3
		;
		((P3 *)_this)->i = trpt->bup.ovals[1];
		now.current[ Index(((P3 *)_this)->i, 2) ] = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 4: // STATE 9
		;
		((P3 *)_this)->i = trpt->bup.oval;
		;
		goto R999;
;
		;
		
	case 6: // STATE 11
		;
		;
		delproc(0, now._nr_pr-1);
		;
		goto R999;

	case 7: // STATE 12
		;
		((P3 *)_this)->i = trpt->bup.oval;
		;
		goto R999;

	case 8: // STATE 18
		;
		((P3 *)_this)->i = trpt->bup.oval;
		;
		goto R999;
;
		;
		
	case 10: // STATE 20
		;
		;
		delproc(0, now._nr_pr-1);
		;
		goto R999;

	case 11: // STATE 21
		;
		((P3 *)_this)->i = trpt->bup.oval;
		;
		goto R999;

	case 12: // STATE 27
		;
		((P3 *)_this)->i = trpt->bup.oval;
		;
		goto R999;

	case 13: // STATE 28
		;
		;
		delproc(0, now._nr_pr-1);
		;
		goto R999;

	case 14: // STATE 30
		;
		p_restor(II);
		;
		;
		goto R999;

		 /* PROC Node */
;
		;
		
	case 16: // STATE 2
		;
		now.current[ Index((((P2 *)_this)->me%2), 2) ] = trpt->bup.oval;
		;
		goto R999;

	case 17: // STATE 4
		;
		now.next_owner = trpt->bup.oval;
		;
		goto R999;
;
		
	case 18: // STATE 11
		goto R999;

	case 19: // STATE 7
		;
		now.next_from = trpt->bup.ovals[1];
		now.next_owner = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;
;
		
	case 20: // STATE 9
		goto R999;
;
		;
		
	case 22: // STATE 18
		;
		((P2 *)_this)->reading = trpt->bup.oval;
		;
		goto R999;

	case 23: // STATE 20
		;
		((P2 *)_this)->reading = trpt->bup.oval;
		;
		goto R999;

	case 24: // STATE 27
		;
		((P2 *)_this)->sweeps = trpt->bup.ovals[1];
		((P2 *)_this)->wants = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 25: // STATE 27
		;
		((P2 *)_this)->sweeps = trpt->bup.ovals[1];
		((P2 *)_this)->wants = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 26: // STATE 40
		;
		((P2 *)_this)->reading = trpt->bup.ovals[3];
		((P2 *)_this)->seen = trpt->bup.ovals[2];
		((P2 *)_this)->wants = trpt->bup.ovals[1];
	/* 0 */	((P2 *)_this)->reading = trpt->bup.ovals[0];
		;
		;
		ungrab_ints(trpt->bup.ovals, 4);
		goto R999;

	case 27: // STATE 40
		;
		((P2 *)_this)->reading = trpt->bup.ovals[3];
		((P2 *)_this)->seen = trpt->bup.ovals[2];
		((P2 *)_this)->sweeps = trpt->bup.ovals[1];
		((P2 *)_this)->wants = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 5);
		goto R999;

	case 28: // STATE 40
		;
		((P2 *)_this)->reading = trpt->bup.ovals[1];
		((P2 *)_this)->seen = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 29: // STATE 40
		;
		((P2 *)_this)->reading = trpt->bup.ovals[1];
		((P2 *)_this)->seen = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 30: // STATE 42
		;
	/* 0 */	((P2 *)_this)->wants = trpt->bup.oval;
		;
		;
		goto R999;

	case 31: // STATE 46
		;
		now.slot_epoch = trpt->bup.ovals[3];
		now.owner = trpt->bup.ovals[2];
		now.ring_epoch = trpt->bup.ovals[1];
	/* 0 */	((P2 *)_this)->seen = trpt->bup.ovals[0];
		;
		;
		ungrab_ints(trpt->bup.ovals, 4);
		goto R999;

	case 32: // STATE 60
		;
		((P2 *)_this)->seen = trpt->bup.ovals[4];
		((P2 *)_this)->sweeps = trpt->bup.ovals[3];
		((P2 *)_this)->wants = trpt->bup.ovals[2];
		now.next_from = trpt->bup.ovals[1];
		now.next_owner = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 5);
		goto R999;

	case 33: // STATE 60
		;
		((P2 *)_this)->seen = trpt->bup.ovals[2];
		((P2 *)_this)->sweeps = trpt->bup.ovals[1];
		((P2 *)_this)->wants = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 3);
		goto R999;

	case 34: // STATE 60
		;
		((P2 *)_this)->seen = trpt->bup.ovals[2];
		((P2 *)_this)->sweeps = trpt->bup.ovals[1];
		((P2 *)_this)->wants = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 3);
		goto R999;

	case 35: // STATE 60
		;
		((P2 *)_this)->seen = trpt->bup.ovals[2];
		((P2 *)_this)->sweeps = trpt->bup.ovals[1];
		((P2 *)_this)->wants = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 3);
		goto R999;
;
		;
		
	case 37: // STATE 71
		;
		((P2 *)_this)->epoch = trpt->bup.ovals[2];
		((P2 *)_this)->attempt = trpt->bup.ovals[1];
		((P2 *)_this)->step = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 4);
		goto R999;

	case 38: // STATE 72
		;
		((P2 *)_this)->window = trpt->bup.oval;
		;
		goto R999;

	case 39: // STATE 74
		;
		((P2 *)_this)->window = trpt->bup.oval;
		;
		goto R999;

	case 40: // STATE 81
		;
		now.busy = trpt->bup.ovals[1];
		((P2 *)_this)->found = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 41: // STATE 81
		;
		now.busy = trpt->bup.ovals[1];
		((P2 *)_this)->found = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;
;
		
	case 42: // STATE 85
		goto R999;
;
		
	case 43: // STATE 83
		goto R999;

	case 44: // STATE 88
		;
	/* 0 */	((P2 *)_this)->found = trpt->bup.oval;
		;
		;
		goto R999;

	case 45: // STATE 90
		;
		((P2 *)_this)->epoch = trpt->bup.ovals[1];
		((P2 *)_this)->passed = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 46: // STATE 92
		;
		now.sharers = trpt->bup.oval;
		;
		goto R999;
;
		
	case 47: // STATE 96
		goto R999;
;
		
	case 48: // STATE 94
		goto R999;

	case 49: // STATE 101
		;
		((P2 *)_this)->attempt = trpt->bup.ovals[1];
		((P2 *)_this)->step = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;
;
		
	case 50: // STATE 109
		goto R999;

	case 51: // STATE 103
		;
		((P2 *)_this)->passed = trpt->bup.ovals[1];
	/* 0 */	((P2 *)_this)->passed = trpt->bup.ovals[0];
		;
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 52: // STATE 104
		;
		now.sharers = trpt->bup.oval;
		;
		goto R999;
;
		
	case 53: // STATE 107
		goto R999;

	case 54: // STATE 111
		;
	/* 0 */	((P2 *)_this)->passed = trpt->bup.oval;
		;
		;
		goto R999;

	case 55: // STATE 112
		;
	/* 0 */	((P2 *)_this)->step = trpt->bup.oval;
		;
		;
		goto R999;

	case 56: // STATE 114
		;
	/* 1 */	((P2 *)_this)->attempt = trpt->bup.ovals[1];
	/* 0 */	((P2 *)_this)->step = trpt->bup.ovals[0];
		;
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 57: // STATE 117
		;
		now.latest_epoch = trpt->bup.oval;
		;
		goto R999;

	case 58: // STATE 121
		;
		now.work_attempt = trpt->bup.ovals[3];
		now.work_step = trpt->bup.ovals[2];
		now.has_marker[ Index((((P2 *)_this)->step*2), 4) ] = trpt->bup.ovals[1];
		successes[ Index(((P2 *)_this)->step, 2) ] = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 4);
		goto R999;

	case 59: // STATE 124
		;
		now.work_attempt = trpt->bup.ovals[1];
		now.work_step = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 2);
		goto R999;

	case 60: // STATE 145
		;
		now.busy = trpt->bup.ovals[7];
		((P2 *)_this)->window = trpt->bup.ovals[6];
		((P2 *)_this)->epoch = trpt->bup.ovals[5];
		((P2 *)_this)->attempt = trpt->bup.ovals[4];
		((P2 *)_this)->step = trpt->bup.ovals[3];
		((P2 *)_this)->passed = trpt->bup.ovals[2];
		((P2 *)_this)->found = trpt->bup.ovals[1];
		now.sharers = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 8);
		goto R999;

	case 61: // STATE 132
		;
	/* 0 */	((P2 *)_this)->passed = trpt->bup.oval;
		;
		;
		goto R999;

	case 62: // STATE 145
		;
		now.busy = trpt->bup.ovals[7];
		((P2 *)_this)->window = trpt->bup.ovals[6];
		((P2 *)_this)->epoch = trpt->bup.ovals[5];
		((P2 *)_this)->attempt = trpt->bup.ovals[4];
		((P2 *)_this)->step = trpt->bup.ovals[3];
		((P2 *)_this)->passed = trpt->bup.ovals[2];
		((P2 *)_this)->found = trpt->bup.ovals[1];
		now.sharers = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 8);
		goto R999;

	case 63: // STATE 135
		;
	/* 0 */	((P2 *)_this)->passed = trpt->bup.oval;
		;
		;
		goto R999;

	case 64: // STATE 145
		;
		now.busy = trpt->bup.ovals[6];
		((P2 *)_this)->window = trpt->bup.ovals[5];
		((P2 *)_this)->epoch = trpt->bup.ovals[4];
		((P2 *)_this)->attempt = trpt->bup.ovals[3];
		((P2 *)_this)->step = trpt->bup.ovals[2];
		((P2 *)_this)->passed = trpt->bup.ovals[1];
		((P2 *)_this)->found = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 7);
		goto R999;

	case 65: // STATE 145
		;
		now.busy = trpt->bup.ovals[6];
		((P2 *)_this)->window = trpt->bup.ovals[5];
		((P2 *)_this)->epoch = trpt->bup.ovals[4];
		((P2 *)_this)->attempt = trpt->bup.ovals[3];
		((P2 *)_this)->step = trpt->bup.ovals[2];
		((P2 *)_this)->passed = trpt->bup.ovals[1];
		((P2 *)_this)->found = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 7);
		goto R999;

	case 66: // STATE 151
		;
		now.is_dead[ Index(((P2 *)_this)->me, 3) ] = trpt->bup.oval;
		;
		goto R999;

	case 67: // STATE 157
		;
		p_restor(II);
		;
		;
		goto R999;

		 /* PROC Coordinator */

	case 68: // STATE 2
		;
		((P1 *)_this)->window = trpt->bup.oval;
		;
		goto R999;

	case 69: // STATE 3
		;
		((P1 *)_this)->name = trpt->bup.oval;
		;
		goto R999;

	case 70: // STATE 5
		;
		((P1 *)_this)->name = trpt->bup.oval;
		;
		goto R999;
;
		;
		
	case 72: // STATE 14
		;
		publications[ Index(((P1 *)_this)->window, 3) ] = trpt->bup.ovals[2];
		now.is_published[ Index(((P1 *)_this)->window, 3) ] = trpt->bup.ovals[1];
		now.ring_epoch = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 3);
		goto R999;

	case 73: // STATE 30
		;
		((P1 *)_this)->name = trpt->bup.ovals[3];
		now.next_from = trpt->bup.ovals[2];
		now.next_owner = trpt->bup.ovals[1];
	/* 0 */	((P1 *)_this)->name = trpt->bup.ovals[0];
		;
		;
		ungrab_ints(trpt->bup.ovals, 4);
		goto R999;

	case 74: // STATE 18
		;
	/* 0 */	((P1 *)_this)->name = trpt->bup.oval;
		;
		;
		goto R999;

	case 75: // STATE 30
		;
		((P1 *)_this)->name = trpt->bup.oval;
		;
		goto R999;

	case 76: // STATE 30
		;
		((P1 *)_this)->name = trpt->bup.ovals[2];
		now.next_from = trpt->bup.ovals[1];
		now.next_owner = trpt->bup.ovals[0];
		;
		ungrab_ints(trpt->bup.ovals, 3);
		goto R999;

	case 77: // STATE 30
		;
		((P1 *)_this)->name = trpt->bup.oval;
		;
		goto R999;

	case 78: // STATE 30
		;
		((P1 *)_this)->name = trpt->bup.oval;
		;
		goto R999;

	case 79: // STATE 36
		;
		p_restor(II);
		;
		;
		goto R999;

		 /* PROC Clock */

	case 80: // STATE 2
		;
		now.open_window = trpt->bup.oval;
		;
		goto R999;
;
		;
		
	case 82: // STATE 9
		;
		p_restor(II);
		;
		;
		goto R999;
	}

