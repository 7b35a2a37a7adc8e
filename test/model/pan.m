#define rand	pan_rand
#define pthread_equal(a,b)	((a)==(b))
#if defined(HAS_CODE) && defined(VERBOSE)
	#ifdef BFS_PAR
		bfs_printf("Pr: %d Tr: %d\n", II, t->forw);
	#else
		cpu_printf("Pr: %d Tr: %d\n", II, t->forw);
	#endif
#endif
	switch (t->forw) {
	default: Uerror("bad forward move");
	case 0:	/* if without executable clauses */
		continue;
	case 1: /* generic 'goto' or 'skip' */
		IfNotBlocked
		_m = 3; goto P999;
	case 2: /* generic 'else' */
		IfNotBlocked
		if (trpt->o_pm&1) continue;
		_m = 3; goto P999;

		 /* PROC :init: */
	case 3: // STATE 1 - ring.pml:377 - [((i<2))] (6:0:2 - 1)
		IfNotBlocked
		reached[3][1] = 1;
		if (!((((int)((P3 *)_this)->i)<2)))
			continue;
		/* merge: current[i] = i(6, 2, 6) */
		reached[3][2] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)now.current[ Index(((int)((P3 *)_this)->i), 2) ]);
		now.current[ Index(((P3 *)_this)->i, 2) ] = ((int)((P3 *)_this)->i);
#ifdef VAR_RANGES
		logval("current[:init::i]", ((int)now.current[ Index(((int)((P3 *)_this)->i), 2) ]));
#endif
		;
		/* merge: i = (i+1)(6, 3, 6) */
		reached[3][3] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P3 *)_this)->i);
		((P3 *)_this)->i = (((int)((P3 *)_this)->i)+1);
#ifdef VAR_RANGES
		logval(":init::i", ((int)((P3 *)_this)->i));
#endif
		;
		/* merge: .(goto)(0, 7, 6) */
		reached[3][7] = 1;
		;
		_m = 3; goto P999; /* 3 */
	case 4: // STATE 9 - ring.pml:380 - [i = 0] (0:15:1 - 3)
		IfNotBlocked
		reached[3][9] = 1;
		(trpt+1)->bup.oval = ((int)((P3 *)_this)->i);
		((P3 *)_this)->i = 0;
#ifdef VAR_RANGES
		logval(":init::i", ((int)((P3 *)_this)->i));
#endif
		;
		/* merge: .(goto)(0, 16, 15) */
		reached[3][16] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 5: // STATE 10 - ring.pml:382 - [((i<(2+1)))] (0:0:0 - 1)
		IfNotBlocked
		reached[3][10] = 1;
		if (!((((int)((P3 *)_this)->i)<(2+1))))
			continue;
		_m = 3; goto P999; /* 0 */
	case 6: // STATE 11 - ring.pml:382 - [(run Node(i))] (0:0:0 - 1)
		IfNotBlocked
		reached[3][11] = 1;
		if (!(addproc(II, 1, 2, ((int)((P3 *)_this)->i))))
			continue;
		_m = 3; goto P999; /* 0 */
	case 7: // STATE 12 - ring.pml:382 - [i = (i+1)] (0:0:1 - 1)
		IfNotBlocked
		reached[3][12] = 1;
		(trpt+1)->bup.oval = ((int)((P3 *)_this)->i);
		((P3 *)_this)->i = (((int)((P3 *)_this)->i)+1);
#ifdef VAR_RANGES
		logval(":init::i", ((int)((P3 *)_this)->i));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 8: // STATE 18 - ring.pml:385 - [i = 0] (0:24:1 - 3)
		IfNotBlocked
		reached[3][18] = 1;
		(trpt+1)->bup.oval = ((int)((P3 *)_this)->i);
		((P3 *)_this)->i = 0;
#ifdef VAR_RANGES
		logval(":init::i", ((int)((P3 *)_this)->i));
#endif
		;
		/* merge: .(goto)(0, 25, 24) */
		reached[3][25] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 9: // STATE 19 - ring.pml:387 - [((i<2))] (0:0:0 - 1)
		IfNotBlocked
		reached[3][19] = 1;
		if (!((((int)((P3 *)_this)->i)<2)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 10: // STATE 20 - ring.pml:387 - [(run Coordinator())] (0:0:0 - 1)
		IfNotBlocked
		reached[3][20] = 1;
		if (!(addproc(II, 1, 1, 0)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 11: // STATE 21 - ring.pml:387 - [i = (i+1)] (0:0:1 - 1)
		IfNotBlocked
		reached[3][21] = 1;
		(trpt+1)->bup.oval = ((int)((P3 *)_this)->i);
		((P3 *)_this)->i = (((int)((P3 *)_this)->i)+1);
#ifdef VAR_RANGES
		logval(":init::i", ((int)((P3 *)_this)->i));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 12: // STATE 27 - ring.pml:390 - [i = 0] (0:28:1 - 3)
		IfNotBlocked
		reached[3][27] = 1;
		(trpt+1)->bup.oval = ((int)((P3 *)_this)->i);
		((P3 *)_this)->i = 0;
#ifdef VAR_RANGES
		logval(":init::i", ((int)((P3 *)_this)->i));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 13: // STATE 28 - ring.pml:391 - [(run Clock())] (0:0:0 - 1)
		IfNotBlocked
		reached[3][28] = 1;
		if (!(addproc(II, 1, 0, 0)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 14: // STATE 30 - ring.pml:393 - [-end-] (0:0:0 - 1)
		IfNotBlocked
		reached[3][30] = 1;
		if (!delproc(1, II)) continue;
		_m = 3; goto P999; /* 0 */

		 /* PROC Node */
	case 15: // STATE 1 - ring.pml:332 - [((me>=2))] (0:0:0 - 1)
		IfNotBlocked
		reached[2][1] = 1;
		if (!((((int)((P2 *)_this)->me)>=2)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 16: // STATE 2 - ring.pml:334 - [current[(me%2)] = me] (0:0:1 - 1)
		IfNotBlocked
		reached[2][2] = 1;
		(trpt+1)->bup.oval = ((int)now.current[ Index((((int)((P2 *)_this)->me)%2), 2) ]);
		now.current[ Index((((P2 *)_this)->me%2), 2) ] = ((int)((P2 *)_this)->me);
#ifdef VAR_RANGES
		logval("current[(Node:me%2)]", ((int)now.current[ Index((((int)((P2 *)_this)->me)%2), 2) ]));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 17: // STATE 3 - ring.pml:336 - [((next_owner==(me%2)))] (154:0:1 - 1)
		IfNotBlocked
		reached[2][3] = 1;
		if (!((((int)now.next_owner)==(((int)((P2 *)_this)->me)%2))))
			continue;
		/* merge: next_owner = me(154, 4, 154) */
		reached[2][4] = 1;
		(trpt+1)->bup.oval = ((int)now.next_owner);
		now.next_owner = ((int)((P2 *)_this)->me);
#ifdef VAR_RANGES
		logval("next_owner", ((int)now.next_owner));
#endif
		;
		/* merge: .(goto)(154, 11, 154) */
		reached[2][11] = 1;
		;
		/* merge: .(goto)(0, 16, 154) */
		reached[2][16] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 4 */
	case 18: // STATE 11 - ring.pml:340 - [.(goto)] (0:154:0 - 3)
		IfNotBlocked
		reached[2][11] = 1;
		;
		/* merge: .(goto)(0, 16, 154) */
		reached[2][16] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 19: // STATE 5 - ring.pml:337 - [(((owner==(me%2))&&(next_owner==255)))] (154:0:2 - 1)
		IfNotBlocked
		reached[2][5] = 1;
		if (!(((((int)now.owner)==(((int)((P2 *)_this)->me)%2))&&(((int)now.next_owner)==255))))
			continue;
		/* merge: next_owner = me(154, 6, 154) */
		reached[2][6] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)now.next_owner);
		now.next_owner = ((int)((P2 *)_this)->me);
#ifdef VAR_RANGES
		logval("next_owner", ((int)now.next_owner));
#endif
		;
		/* merge: next_from = 0(154, 7, 154) */
		reached[2][7] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.next_from);
		now.next_from = 0;
#ifdef VAR_RANGES
		logval("next_from", ((int)now.next_from));
#endif
		;
		/* merge: .(goto)(154, 11, 154) */
		reached[2][11] = 1;
		;
		/* merge: .(goto)(0, 16, 154) */
		reached[2][16] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 5 */
	case 20: // STATE 9 - ring.pml:338 - [(1)] (154:0:0 - 1)
		IfNotBlocked
		reached[2][9] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(154, 11, 154) */
		reached[2][11] = 1;
		;
		/* merge: .(goto)(0, 16, 154) */
		reached[2][16] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 3 */
	case 21: // STATE 17 - ring.pml:344 - [((work_step<2))] (0:0:0 - 1)
		IfNotBlocked
		reached[2][17] = 1;
		if (!((((int)now.work_step)<2)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 22: // STATE 18 - ring.pml:123 - [reading = 0] (0:0:1 - 1)
		IfNotBlocked
		reached[2][18] = 1;
		(trpt+1)->bup.oval = ((int)((P2 *)_this)->reading);
		((P2 *)_this)->reading = 0;
#ifdef VAR_RANGES
		logval("Node:reading", ((int)((P2 *)_this)->reading));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 23: // STATE 19 - ring.pml:125 - [((reading<2))] (22:0:1 - 1)
		IfNotBlocked
		reached[2][19] = 1;
		if (!((((int)((P2 *)_this)->reading)<2)))
			continue;
		/* merge: reading = (reading+1)(0, 20, 22) */
		reached[2][20] = 1;
		(trpt+1)->bup.oval = ((int)((P2 *)_this)->reading);
		((P2 *)_this)->reading = (((int)((P2 *)_this)->reading)+1);
#ifdef VAR_RANGES
		logval("Node:reading", ((int)((P2 *)_this)->reading));
#endif
		;
		/* merge: .(goto)(0, 23, 22) */
		reached[2][23] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 24: // STATE 21 - ring.pml:126 - [goto :b4] (0:37:2 - 1)
		IfNotBlocked
		reached[2][21] = 1;
		;
		/* merge: wants = 0(37, 26, 37) */
		reached[2][26] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 0;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 0(37, 27, 37) */
		reached[2][27] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 0;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		_m = 3; goto P999; /* 2 */
	case 25: // STATE 26 - ring.pml:197 - [wants = 0] (0:37:2 - 2)
		IfNotBlocked
		reached[2][26] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 0;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 0(37, 27, 37) */
		reached[2][27] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 0;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		_m = 3; goto P999; /* 1 */
	case 26: // STATE 28 - ring.pml:199 - [(((next_owner==me)&&(next_from<=reading)))] (64:0:4 - 1)
		IfNotBlocked
		reached[2][28] = 1;
		if (!(((((int)now.next_owner)==((int)((P2 *)_this)->me))&&(((int)now.next_from)<=((int)((P2 *)_this)->reading)))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: reading */  (trpt+1)->bup.ovals = grab_ints(4);
		(trpt+1)->bup.ovals[0] = ((P2 *)_this)->reading;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->reading = 0;
		/* merge: wants = 1(64, 29, 64) */
		reached[2][29] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 1;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: .(goto)(64, 38, 64) */
		reached[2][38] = 1;
		;
		/* merge: seen = slot_epoch(64, 39, 64) */
		reached[2][39] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = ((int)now.slot_epoch);
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: reading = 0(64, 40, 64) */
		reached[2][40] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->reading);
		((P2 *)_this)->reading = 0;
#ifdef VAR_RANGES
		logval("Node:reading", ((int)((P2 *)_this)->reading));
#endif
		;
		_m = 3; goto P999; /* 4 */
	case 27: // STATE 31 - ring.pml:203 - [((((2&&(owner!=me))&&(current[(me%2)]==me))&&(((2==2)||(owner==255))||is_dead[owner])))] (64:0:5 - 1)
		IfNotBlocked
		reached[2][31] = 1;
		if (!((((2&&(((int)now.owner)!=((int)((P2 *)_this)->me)))&&(((int)now.current[ Index((((int)((P2 *)_this)->me)%2), 2) ])==((int)((P2 *)_this)->me)))&&(((2==2)||(((int)now.owner)==255))||((int)now.is_dead[ Index(((int)now.owner), 3) ])))))
			continue;
		/* merge: wants = 1(64, 32, 64) */
		reached[2][32] = 1;
		(trpt+1)->bup.ovals = grab_ints(5);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 1;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 1(64, 33, 64) */
		reached[2][33] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 1;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		if (TstOnly) return 1; /* TT */
		/* dead 2: sweeps */  
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->sweeps = 0;
		/* merge: .(goto)(64, 36, 64) */
		reached[2][36] = 1;
		;
		/* merge: .(goto)(64, 38, 64) */
		reached[2][38] = 1;
		;
		/* merge: seen = slot_epoch(64, 39, 64) */
		reached[2][39] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = ((int)now.slot_epoch);
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: reading = 0(64, 40, 64) */
		reached[2][40] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->reading);
		((P2 *)_this)->reading = 0;
#ifdef VAR_RANGES
		logval("Node:reading", ((int)((P2 *)_this)->reading));
#endif
		;
		_m = 3; goto P999; /* 6 */
	case 28: // STATE 34 - ring.pml:204 - [(1)] (64:0:2 - 1)
		IfNotBlocked
		reached[2][34] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(64, 36, 64) */
		reached[2][36] = 1;
		;
		/* merge: .(goto)(64, 38, 64) */
		reached[2][38] = 1;
		;
		/* merge: seen = slot_epoch(64, 39, 64) */
		reached[2][39] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = ((int)now.slot_epoch);
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: reading = 0(64, 40, 64) */
		reached[2][40] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->reading);
		((P2 *)_this)->reading = 0;
#ifdef VAR_RANGES
		logval("Node:reading", ((int)((P2 *)_this)->reading));
#endif
		;
		_m = 3; goto P999; /* 4 */
	case 29: // STATE 39 - ring.pml:207 - [seen = slot_epoch] (0:64:2 - 5)
		IfNotBlocked
		reached[2][39] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = ((int)now.slot_epoch);
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: reading = 0(64, 40, 64) */
		reached[2][40] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->reading);
		((P2 *)_this)->reading = 0;
#ifdef VAR_RANGES
		logval("Node:reading", ((int)((P2 *)_this)->reading));
#endif
		;
		_m = 3; goto P999; /* 1 */
	case 30: // STATE 42 - ring.pml:210 - [(wants)] (0:0:1 - 1)
		IfNotBlocked
		reached[2][42] = 1;
		if (!(((int)((P2 *)_this)->wants)))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: wants */  (trpt+1)->bup.oval = ((P2 *)_this)->wants;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->wants = 0;
		_m = 3; goto P999; /* 0 */
	case 31: // STATE 43 - ring.pml:213 - [(((!(1)||(sharers==0))&&(!(1)||(slot_epoch==seen))))] (52:0:4 - 1)
		IfNotBlocked
		reached[2][43] = 1;
		if (!((( !(1)||(((int)now.sharers)==0))&&( !(1)||(((int)now.slot_epoch)==((int)((P2 *)_this)->seen))))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: seen */  (trpt+1)->bup.ovals = grab_ints(4);
		(trpt+1)->bup.ovals[0] = ((P2 *)_this)->seen;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->seen = 0;
		/* merge: ring_epoch = (ring_epoch+1)(52, 44, 52) */
		reached[2][44] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.ring_epoch);
		now.ring_epoch = (((int)now.ring_epoch)+1);
#ifdef VAR_RANGES
		logval("ring_epoch", ((int)now.ring_epoch));
#endif
		;
		/* merge: owner = me(52, 45, 52) */
		reached[2][45] = 1;
		(trpt+1)->bup.ovals[2] = ((int)now.owner);
		now.owner = ((int)((P2 *)_this)->me);
#ifdef VAR_RANGES
		logval("owner", ((int)now.owner));
#endif
		;
		/* merge: slot_epoch = ring_epoch(52, 46, 52) */
		reached[2][46] = 1;
		(trpt+1)->bup.ovals[3] = ((int)now.slot_epoch);
		now.slot_epoch = ((int)now.ring_epoch);
#ifdef VAR_RANGES
		logval("slot_epoch", ((int)now.slot_epoch));
#endif
		;
		_m = 3; goto P999; /* 3 */
	case 32: // STATE 47 - ring.pml:223 - [((next_owner==me))] (154:0:5 - 1)
		IfNotBlocked
		reached[2][47] = 1;
		if (!((((int)now.next_owner)==((int)((P2 *)_this)->me))))
			continue;
		/* merge: next_owner = 255(154, 48, 154) */
		reached[2][48] = 1;
		(trpt+1)->bup.ovals = grab_ints(5);
		(trpt+1)->bup.ovals[0] = ((int)now.next_owner);
		now.next_owner = 255;
#ifdef VAR_RANGES
		logval("next_owner", ((int)now.next_owner));
#endif
		;
		/* merge: next_from = 0(154, 49, 154) */
		reached[2][49] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.next_from);
		now.next_from = 0;
#ifdef VAR_RANGES
		logval("next_from", ((int)now.next_from));
#endif
		;
		/* merge: .(goto)(154, 53, 154) */
		reached[2][53] = 1;
		;
		/* merge: .(goto)(154, 57, 154) */
		reached[2][57] = 1;
		;
		/* merge: wants = 0(154, 58, 154) */
		reached[2][58] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 0;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 0(154, 59, 154) */
		reached[2][59] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 0;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		/* merge: seen = 0(154, 60, 154) */
		reached[2][60] = 1;
		(trpt+1)->bup.ovals[4] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = 0;
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: .(goto)(0, 65, 154) */
		reached[2][65] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 9 */
	case 33: // STATE 51 - ring.pml:224 - [(1)] (154:0:3 - 1)
		IfNotBlocked
		reached[2][51] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(154, 53, 154) */
		reached[2][53] = 1;
		;
		/* merge: .(goto)(154, 57, 154) */
		reached[2][57] = 1;
		;
		/* merge: wants = 0(154, 58, 154) */
		reached[2][58] = 1;
		(trpt+1)->bup.ovals = grab_ints(3);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 0;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 0(154, 59, 154) */
		reached[2][59] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 0;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		/* merge: seen = 0(154, 60, 154) */
		reached[2][60] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = 0;
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: .(goto)(0, 65, 154) */
		reached[2][65] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 7 */
	case 34: // STATE 55 - ring.pml:226 - [(1)] (154:0:3 - 1)
		IfNotBlocked
		reached[2][55] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(154, 57, 154) */
		reached[2][57] = 1;
		;
		/* merge: wants = 0(154, 58, 154) */
		reached[2][58] = 1;
		(trpt+1)->bup.ovals = grab_ints(3);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 0;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 0(154, 59, 154) */
		reached[2][59] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 0;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		/* merge: seen = 0(154, 60, 154) */
		reached[2][60] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = 0;
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: .(goto)(0, 65, 154) */
		reached[2][65] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 6 */
	case 35: // STATE 58 - ring.pml:228 - [wants = 0] (0:154:3 - 5)
		IfNotBlocked
		reached[2][58] = 1;
		(trpt+1)->bup.ovals = grab_ints(3);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->wants);
		((P2 *)_this)->wants = 0;
#ifdef VAR_RANGES
		logval("Node:wants", ((int)((P2 *)_this)->wants));
#endif
		;
		/* merge: sweeps = 0(154, 59, 154) */
		reached[2][59] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->sweeps);
		((P2 *)_this)->sweeps = 0;
#ifdef VAR_RANGES
		logval("Node:sweeps", ((int)((P2 *)_this)->sweeps));
#endif
		;
		/* merge: seen = 0(154, 60, 154) */
		reached[2][60] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->seen);
		((P2 *)_this)->seen = 0;
#ifdef VAR_RANGES
		logval("Node:seen", ((int)((P2 *)_this)->seen));
#endif
		;
		/* merge: .(goto)(0, 65, 154) */
		reached[2][65] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 4 */
	case 36: // STATE 67 - ring.pml:345 - [((work_step<2))] (0:0:0 - 1)
		IfNotBlocked
		reached[2][67] = 1;
		if (!((((int)now.work_step)<2)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 37: // STATE 68 - ring.pml:238 - [(((owner==me)&&(work_step<2)))] (79:0:4 - 1)
		IfNotBlocked
		reached[2][68] = 1;
		if (!(((((int)now.owner)==((int)((P2 *)_this)->me))&&(((int)now.work_step)<2))))
			continue;
		/* merge: step = work_step(79, 69, 79) */
		reached[2][69] = 1;
		(trpt+1)->bup.ovals = grab_ints(4);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->step);
		((P2 *)_this)->step = ((int)now.work_step);
#ifdef VAR_RANGES
		logval("Node:step", ((int)((P2 *)_this)->step));
#endif
		;
		/* merge: attempt = work_attempt(79, 70, 79) */
		reached[2][70] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->attempt);
		((P2 *)_this)->attempt = ((int)now.work_attempt);
#ifdef VAR_RANGES
		logval("Node:attempt", ((int)((P2 *)_this)->attempt));
#endif
		;
		/* merge: epoch = slot_epoch(79, 71, 79) */
		reached[2][71] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->epoch);
		((P2 *)_this)->epoch = ((int)now.slot_epoch);
#ifdef VAR_RANGES
		logval("Node:epoch", ((int)((P2 *)_this)->epoch));
#endif
		;
		if (TstOnly) return 1; /* TT */
		/* dead 2: epoch */  
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->epoch = 0;
		_m = 3; goto P999; /* 3 */
	case 38: // STATE 72 - ring.pml:123 - [window = 0] (0:0:1 - 1)
		IfNotBlocked
		reached[2][72] = 1;
		(trpt+1)->bup.oval = ((int)((P2 *)_this)->window);
		((P2 *)_this)->window = 0;
#ifdef VAR_RANGES
		logval("Node:window", ((int)((P2 *)_this)->window));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 39: // STATE 73 - ring.pml:125 - [((window<2))] (76:0:1 - 1)
		IfNotBlocked
		reached[2][73] = 1;
		if (!((((int)((P2 *)_this)->window)<2)))
			continue;
		/* merge: window = (window+1)(0, 74, 76) */
		reached[2][74] = 1;
		(trpt+1)->bup.oval = ((int)((P2 *)_this)->window);
		((P2 *)_this)->window = (((int)((P2 *)_this)->window)+1);
#ifdef VAR_RANGES
		logval("Node:window", ((int)((P2 *)_this)->window));
#endif
		;
		/* merge: .(goto)(0, 77, 76) */
		reached[2][77] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 40: // STATE 75 - ring.pml:126 - [goto :b5] (0:149:2 - 1)
		IfNotBlocked
		reached[2][75] = 1;
		;
		/* merge: found = 1(149, 80, 149) */
		reached[2][80] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->found);
		((P2 *)_this)->found = 1;
#ifdef VAR_RANGES
		logval("Node:found", ((int)((P2 *)_this)->found));
#endif
		;
		/* merge: busy = (busy+1)(149, 81, 149) */
		reached[2][81] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.busy);
		now.busy = (((int)now.busy)+1);
#ifdef VAR_RANGES
		logval("busy", ((int)now.busy));
#endif
		;
		/* merge: .(goto)(149, 85, 149) */
		reached[2][85] = 1;
		;
		_m = 3; goto P999; /* 3 */
	case 41: // STATE 80 - ring.pml:240 - [found = 1] (0:149:2 - 2)
		IfNotBlocked
		reached[2][80] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->found);
		((P2 *)_this)->found = 1;
#ifdef VAR_RANGES
		logval("Node:found", ((int)((P2 *)_this)->found));
#endif
		;
		/* merge: busy = (busy+1)(149, 81, 149) */
		reached[2][81] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.busy);
		now.busy = (((int)now.busy)+1);
#ifdef VAR_RANGES
		logval("busy", ((int)now.busy));
#endif
		;
		/* merge: .(goto)(149, 85, 149) */
		reached[2][85] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 42: // STATE 85 - ring.pml:243 - [.(goto)] (0:149:0 - 2)
		IfNotBlocked
		reached[2][85] = 1;
		;
		_m = 3; goto P999; /* 0 */
	case 43: // STATE 83 - ring.pml:241 - [(1)] (149:0:0 - 1)
		IfNotBlocked
		reached[2][83] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(149, 85, 149) */
		reached[2][85] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 44: // STATE 88 - ring.pml:348 - [(found)] (0:0:1 - 1)
		IfNotBlocked
		reached[2][88] = 1;
		if (!(((int)((P2 *)_this)->found)))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: found */  (trpt+1)->bup.oval = ((P2 *)_this)->found;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->found = 0;
		_m = 3; goto P999; /* 0 */
	case 45: // STATE 89 - ring.pml:249 - [passed = (owner==me)] (0:95:2 - 1)
		IfNotBlocked
		reached[2][89] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->passed);
		((P2 *)_this)->passed = (((int)now.owner)==((int)((P2 *)_this)->me));
#ifdef VAR_RANGES
		logval("Node:passed", ((int)((P2 *)_this)->passed));
#endif
		;
		/* merge: epoch = slot_epoch(95, 90, 95) */
		reached[2][90] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->epoch);
		((P2 *)_this)->epoch = ((int)now.slot_epoch);
#ifdef VAR_RANGES
		logval("Node:epoch", ((int)((P2 *)_this)->epoch));
#endif
		;
		_m = 3; goto P999; /* 1 */
	case 46: // STATE 91 - ring.pml:251 - [(passed)] (110:0:1 - 1)
		IfNotBlocked
		reached[2][91] = 1;
		if (!(((int)((P2 *)_this)->passed)))
			continue;
		/* merge: sharers = (sharers+1)(110, 92, 110) */
		reached[2][92] = 1;
		(trpt+1)->bup.oval = ((int)now.sharers);
		now.sharers = (((int)now.sharers)+1);
#ifdef VAR_RANGES
		logval("sharers", ((int)now.sharers));
#endif
		;
		/* merge: .(goto)(110, 96, 110) */
		reached[2][96] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 47: // STATE 96 - ring.pml:254 - [.(goto)] (0:110:0 - 2)
		IfNotBlocked
		reached[2][96] = 1;
		;
		_m = 3; goto P999; /* 0 */
	case 48: // STATE 94 - ring.pml:252 - [(1)] (110:0:0 - 1)
		IfNotBlocked
		reached[2][94] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(110, 96, 110) */
		reached[2][96] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 49: // STATE 99 - ring.pml:353 - [((passed&&(work_step<2)))] (146:0:2 - 1)
		IfNotBlocked
		reached[2][99] = 1;
		if (!((((int)((P2 *)_this)->passed)&&(((int)now.work_step)<2))))
			continue;
		/* merge: step = work_step(146, 100, 146) */
		reached[2][100] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->step);
		((P2 *)_this)->step = ((int)now.work_step);
#ifdef VAR_RANGES
		logval("Node:step", ((int)((P2 *)_this)->step));
#endif
		;
		/* merge: attempt = work_attempt(146, 101, 146) */
		reached[2][101] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->attempt);
		((P2 *)_this)->attempt = ((int)now.work_attempt);
#ifdef VAR_RANGES
		logval("Node:attempt", ((int)((P2 *)_this)->attempt));
#endif
		;
		/* merge: .(goto)(146, 109, 146) */
		reached[2][109] = 1;
		;
		_m = 3; goto P999; /* 3 */
	case 50: // STATE 109 - ring.pml:357 - [.(goto)] (0:146:0 - 3)
		IfNotBlocked
		reached[2][109] = 1;
		;
		_m = 3; goto P999; /* 0 */
	case 51: // STATE 102 - ring.pml:354 - [((passed&&(work_step==2)))] (105:0:2 - 1)
		IfNotBlocked
		reached[2][102] = 1;
		if (!((((int)((P2 *)_this)->passed)&&(((int)now.work_step)==2))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: passed */  (trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((P2 *)_this)->passed;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->passed = 0;
		/* merge: passed = 0(0, 103, 105) */
		reached[2][103] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->passed);
		((P2 *)_this)->passed = 0;
#ifdef VAR_RANGES
		logval("Node:passed", ((int)((P2 *)_this)->passed));
#endif
		;
		_m = 3; goto P999; /* 1 */
	case 52: // STATE 104 - ring.pml:285 - [sharers = (sharers-1)] (0:146:1 - 1)
		IfNotBlocked
		reached[2][104] = 1;
		(trpt+1)->bup.oval = ((int)now.sharers);
		now.sharers = (((int)now.sharers)-1);
#ifdef VAR_RANGES
		logval("sharers", ((int)now.sharers));
#endif
		;
		/* merge: .(goto)(146, 109, 146) */
		reached[2][109] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 53: // STATE 107 - ring.pml:355 - [(1)] (146:0:0 - 1)
		IfNotBlocked
		reached[2][107] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(146, 109, 146) */
		reached[2][109] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 54: // STATE 111 - ring.pml:361 - [(passed)] (0:0:1 - 1)
		IfNotBlocked
		reached[2][111] = 1;
		if (!(((int)((P2 *)_this)->passed)))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: passed */  (trpt+1)->bup.oval = ((P2 *)_this)->passed;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->passed = 0;
		_m = 3; goto P999; /* 0 */
	case 55: // STATE 112 - ring.pml:298 - [(has_marker[(step*2)])] (0:0:1 - 1)
		IfNotBlocked
		reached[2][112] = 1;
		if (!(((int)now.has_marker[ Index((((int)((P2 *)_this)->step)*2), 4) ])))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: step */  (trpt+1)->bup.oval = ((P2 *)_this)->step;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->step = 0;
		_m = 3; goto P999; /* 0 */
	case 56: // STATE 114 - ring.pml:301 - [(((work_step!=step)||(work_attempt!=attempt)))] (0:0:2 - 1)
		IfNotBlocked
		reached[2][114] = 1;
		if (!(((((int)now.work_step)!=((int)((P2 *)_this)->step))||(((int)now.work_attempt)!=((int)((P2 *)_this)->attempt)))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: step */  (trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((P2 *)_this)->step;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->step = 0;
		if (TstOnly) return 1; /* TT */
		/* dead 1: attempt */  (trpt+1)->bup.ovals[1] = ((P2 *)_this)->attempt;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->attempt = 0;
		_m = 3; goto P999; /* 0 */
	case 57: // STATE 117 - ring.pml:310 - [latest_epoch = ( ((epoch>latest_epoch)) -> (epoch) : (latest_epoch) )] (0:0:1 - 1)
		IfNotBlocked
		reached[2][117] = 1;
		(trpt+1)->bup.oval = ((int)now.latest_epoch);
		now.latest_epoch = ( ((((int)((P2 *)_this)->epoch)>((int)now.latest_epoch))) ? (((int)((P2 *)_this)->epoch)) : (((int)now.latest_epoch)) );
#ifdef VAR_RANGES
		logval("latest_epoch", ((int)now.latest_epoch));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 58: // STATE 118 - ring.pml:312 - [successes[step] = (successes[step]+1)] (0:131:4 - 1)
		IfNotBlocked
		reached[2][118] = 1;
		(trpt+1)->bup.ovals = grab_ints(4);
		(trpt+1)->bup.ovals[0] = ((int)successes[ Index(((int)((P2 *)_this)->step), 2) ]);
		successes[ Index(((P2 *)_this)->step, 2) ] = (((int)successes[ Index(((int)((P2 *)_this)->step), 2) ])+1);
#ifdef VAR_RANGES
		logval("successes[Node:step]", ((int)successes[ Index(((int)((P2 *)_this)->step), 2) ]));
#endif
		;
		/* merge: has_marker[(step*2)] = 1(131, 119, 131) */
		reached[2][119] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.has_marker[ Index((((int)((P2 *)_this)->step)*2), 4) ]);
		now.has_marker[ Index((((P2 *)_this)->step*2), 4) ] = 1;
#ifdef VAR_RANGES
		logval("has_marker[(Node:step*2)]", ((int)now.has_marker[ Index((((int)((P2 *)_this)->step)*2), 4) ]));
#endif
		;
		/* merge: work_step = (step+1)(131, 120, 131) */
		reached[2][120] = 1;
		(trpt+1)->bup.ovals[2] = ((int)now.work_step);
		now.work_step = (((int)((P2 *)_this)->step)+1);
#ifdef VAR_RANGES
		logval("work_step", ((int)now.work_step));
#endif
		;
		/* merge: work_attempt = 0(131, 121, 131) */
		reached[2][121] = 1;
		(trpt+1)->bup.ovals[3] = ((int)now.work_attempt);
		now.work_attempt = 0;
#ifdef VAR_RANGES
		logval("work_attempt", ((int)now.work_attempt));
#endif
		;
		/* merge: .(goto)(0, 126, 131) */
		reached[2][126] = 1;
		;
		/* merge: .(goto)(0, 128, 131) */
		reached[2][128] = 1;
		;
		_m = 3; goto P999; /* 5 */
	case 59: // STATE 122 - ring.pml:322 - [((attempt<(2-1)))] (131:0:2 - 1)
		IfNotBlocked
		reached[2][122] = 1;
		if (!((((int)((P2 *)_this)->attempt)<(2-1))))
			continue;
		/* merge: work_step = step(131, 123, 131) */
		reached[2][123] = 1;
		(trpt+1)->bup.ovals = grab_ints(2);
		(trpt+1)->bup.ovals[0] = ((int)now.work_step);
		now.work_step = ((int)((P2 *)_this)->step);
#ifdef VAR_RANGES
		logval("work_step", ((int)now.work_step));
#endif
		;
		/* merge: work_attempt = (attempt+1)(131, 124, 131) */
		reached[2][124] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.work_attempt);
		now.work_attempt = (((int)((P2 *)_this)->attempt)+1);
#ifdef VAR_RANGES
		logval("work_attempt", ((int)now.work_attempt));
#endif
		;
		/* merge: .(goto)(0, 126, 131) */
		reached[2][126] = 1;
		;
		/* merge: .(goto)(0, 128, 131) */
		reached[2][128] = 1;
		;
		_m = 3; goto P999; /* 4 */
	case 60: // STATE 130 - ring.pml:285 - [sharers = (sharers-1)] (0:154:8 - 1)
		IfNotBlocked
		reached[2][130] = 1;
		(trpt+1)->bup.ovals = grab_ints(8);
		(trpt+1)->bup.ovals[0] = ((int)now.sharers);
		now.sharers = (((int)now.sharers)-1);
#ifdef VAR_RANGES
		logval("sharers", ((int)now.sharers));
#endif
		;
		/* merge: .(goto)(154, 138, 154) */
		reached[2][138] = 1;
		;
		/* merge: found = 0(154, 139, 154) */
		reached[2][139] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->found);
		((P2 *)_this)->found = 0;
#ifdef VAR_RANGES
		logval("Node:found", ((int)((P2 *)_this)->found));
#endif
		;
		/* merge: passed = 0(154, 140, 154) */
		reached[2][140] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->passed);
		((P2 *)_this)->passed = 0;
#ifdef VAR_RANGES
		logval("Node:passed", ((int)((P2 *)_this)->passed));
#endif
		;
		/* merge: step = 0(154, 141, 154) */
		reached[2][141] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->step);
		((P2 *)_this)->step = 0;
#ifdef VAR_RANGES
		logval("Node:step", ((int)((P2 *)_this)->step));
#endif
		;
		/* merge: attempt = 0(154, 142, 154) */
		reached[2][142] = 1;
		(trpt+1)->bup.ovals[4] = ((int)((P2 *)_this)->attempt);
		((P2 *)_this)->attempt = 0;
#ifdef VAR_RANGES
		logval("Node:attempt", ((int)((P2 *)_this)->attempt));
#endif
		;
		/* merge: epoch = 0(154, 143, 154) */
		reached[2][143] = 1;
		(trpt+1)->bup.ovals[5] = ((int)((P2 *)_this)->epoch);
		((P2 *)_this)->epoch = 0;
#ifdef VAR_RANGES
		logval("Node:epoch", ((int)((P2 *)_this)->epoch));
#endif
		;
		/* merge: window = 0(154, 144, 154) */
		reached[2][144] = 1;
		(trpt+1)->bup.ovals[6] = ((int)((P2 *)_this)->window);
		((P2 *)_this)->window = 0;
#ifdef VAR_RANGES
		logval("Node:window", ((int)((P2 *)_this)->window));
#endif
		;
		/* merge: busy = (busy-1)(154, 145, 154) */
		reached[2][145] = 1;
		(trpt+1)->bup.ovals[7] = ((int)now.busy);
		now.busy = (((int)now.busy)-1);
#ifdef VAR_RANGES
		logval("busy", ((int)now.busy));
#endif
		;
		/* merge: .(goto)(0, 150, 154) */
		reached[2][150] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 10 */
	case 61: // STATE 132 - ring.pml:362 - [(passed)] (0:0:1 - 1)
		IfNotBlocked
		reached[2][132] = 1;
		if (!(((int)((P2 *)_this)->passed)))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: passed */  (trpt+1)->bup.oval = ((P2 *)_this)->passed;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->passed = 0;
		_m = 3; goto P999; /* 0 */
	case 62: // STATE 133 - ring.pml:285 - [sharers = (sharers-1)] (0:154:8 - 1)
		IfNotBlocked
		reached[2][133] = 1;
		(trpt+1)->bup.ovals = grab_ints(8);
		(trpt+1)->bup.ovals[0] = ((int)now.sharers);
		now.sharers = (((int)now.sharers)-1);
#ifdef VAR_RANGES
		logval("sharers", ((int)now.sharers));
#endif
		;
		/* merge: .(goto)(154, 138, 154) */
		reached[2][138] = 1;
		;
		/* merge: found = 0(154, 139, 154) */
		reached[2][139] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->found);
		((P2 *)_this)->found = 0;
#ifdef VAR_RANGES
		logval("Node:found", ((int)((P2 *)_this)->found));
#endif
		;
		/* merge: passed = 0(154, 140, 154) */
		reached[2][140] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->passed);
		((P2 *)_this)->passed = 0;
#ifdef VAR_RANGES
		logval("Node:passed", ((int)((P2 *)_this)->passed));
#endif
		;
		/* merge: step = 0(154, 141, 154) */
		reached[2][141] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->step);
		((P2 *)_this)->step = 0;
#ifdef VAR_RANGES
		logval("Node:step", ((int)((P2 *)_this)->step));
#endif
		;
		/* merge: attempt = 0(154, 142, 154) */
		reached[2][142] = 1;
		(trpt+1)->bup.ovals[4] = ((int)((P2 *)_this)->attempt);
		((P2 *)_this)->attempt = 0;
#ifdef VAR_RANGES
		logval("Node:attempt", ((int)((P2 *)_this)->attempt));
#endif
		;
		/* merge: epoch = 0(154, 143, 154) */
		reached[2][143] = 1;
		(trpt+1)->bup.ovals[5] = ((int)((P2 *)_this)->epoch);
		((P2 *)_this)->epoch = 0;
#ifdef VAR_RANGES
		logval("Node:epoch", ((int)((P2 *)_this)->epoch));
#endif
		;
		/* merge: window = 0(154, 144, 154) */
		reached[2][144] = 1;
		(trpt+1)->bup.ovals[6] = ((int)((P2 *)_this)->window);
		((P2 *)_this)->window = 0;
#ifdef VAR_RANGES
		logval("Node:window", ((int)((P2 *)_this)->window));
#endif
		;
		/* merge: busy = (busy-1)(154, 145, 154) */
		reached[2][145] = 1;
		(trpt+1)->bup.ovals[7] = ((int)now.busy);
		now.busy = (((int)now.busy)-1);
#ifdef VAR_RANGES
		logval("busy", ((int)now.busy));
#endif
		;
		/* merge: .(goto)(0, 150, 154) */
		reached[2][150] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 10 */
	case 63: // STATE 135 - ring.pml:363 - [(!(passed))] (0:0:1 - 1)
		IfNotBlocked
		reached[2][135] = 1;
		if (!( !(((int)((P2 *)_this)->passed))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: passed */  (trpt+1)->bup.oval = ((P2 *)_this)->passed;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P2 *)_this)->passed = 0;
		_m = 3; goto P999; /* 0 */
	case 64: // STATE 136 - ring.pml:363 - [(1)] (154:0:7 - 1)
		IfNotBlocked
		reached[2][136] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(154, 138, 154) */
		reached[2][138] = 1;
		;
		/* merge: found = 0(154, 139, 154) */
		reached[2][139] = 1;
		(trpt+1)->bup.ovals = grab_ints(7);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->found);
		((P2 *)_this)->found = 0;
#ifdef VAR_RANGES
		logval("Node:found", ((int)((P2 *)_this)->found));
#endif
		;
		/* merge: passed = 0(154, 140, 154) */
		reached[2][140] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->passed);
		((P2 *)_this)->passed = 0;
#ifdef VAR_RANGES
		logval("Node:passed", ((int)((P2 *)_this)->passed));
#endif
		;
		/* merge: step = 0(154, 141, 154) */
		reached[2][141] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->step);
		((P2 *)_this)->step = 0;
#ifdef VAR_RANGES
		logval("Node:step", ((int)((P2 *)_this)->step));
#endif
		;
		/* merge: attempt = 0(154, 142, 154) */
		reached[2][142] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->attempt);
		((P2 *)_this)->attempt = 0;
#ifdef VAR_RANGES
		logval("Node:attempt", ((int)((P2 *)_this)->attempt));
#endif
		;
		/* merge: epoch = 0(154, 143, 154) */
		reached[2][143] = 1;
		(trpt+1)->bup.ovals[4] = ((int)((P2 *)_this)->epoch);
		((P2 *)_this)->epoch = 0;
#ifdef VAR_RANGES
		logval("Node:epoch", ((int)((P2 *)_this)->epoch));
#endif
		;
		/* merge: window = 0(154, 144, 154) */
		reached[2][144] = 1;
		(trpt+1)->bup.ovals[5] = ((int)((P2 *)_this)->window);
		((P2 *)_this)->window = 0;
#ifdef VAR_RANGES
		logval("Node:window", ((int)((P2 *)_this)->window));
#endif
		;
		/* merge: busy = (busy-1)(154, 145, 154) */
		reached[2][145] = 1;
		(trpt+1)->bup.ovals[6] = ((int)now.busy);
		now.busy = (((int)now.busy)-1);
#ifdef VAR_RANGES
		logval("busy", ((int)now.busy));
#endif
		;
		/* merge: .(goto)(0, 150, 154) */
		reached[2][150] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 10 */
	case 65: // STATE 139 - ring.pml:365 - [found = 0] (0:154:7 - 4)
		IfNotBlocked
		reached[2][139] = 1;
		(trpt+1)->bup.ovals = grab_ints(7);
		(trpt+1)->bup.ovals[0] = ((int)((P2 *)_this)->found);
		((P2 *)_this)->found = 0;
#ifdef VAR_RANGES
		logval("Node:found", ((int)((P2 *)_this)->found));
#endif
		;
		/* merge: passed = 0(154, 140, 154) */
		reached[2][140] = 1;
		(trpt+1)->bup.ovals[1] = ((int)((P2 *)_this)->passed);
		((P2 *)_this)->passed = 0;
#ifdef VAR_RANGES
		logval("Node:passed", ((int)((P2 *)_this)->passed));
#endif
		;
		/* merge: step = 0(154, 141, 154) */
		reached[2][141] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P2 *)_this)->step);
		((P2 *)_this)->step = 0;
#ifdef VAR_RANGES
		logval("Node:step", ((int)((P2 *)_this)->step));
#endif
		;
		/* merge: attempt = 0(154, 142, 154) */
		reached[2][142] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P2 *)_this)->attempt);
		((P2 *)_this)->attempt = 0;
#ifdef VAR_RANGES
		logval("Node:attempt", ((int)((P2 *)_this)->attempt));
#endif
		;
		/* merge: epoch = 0(154, 143, 154) */
		reached[2][143] = 1;
		(trpt+1)->bup.ovals[4] = ((int)((P2 *)_this)->epoch);
		((P2 *)_this)->epoch = 0;
#ifdef VAR_RANGES
		logval("Node:epoch", ((int)((P2 *)_this)->epoch));
#endif
		;
		/* merge: window = 0(154, 144, 154) */
		reached[2][144] = 1;
		(trpt+1)->bup.ovals[5] = ((int)((P2 *)_this)->window);
		((P2 *)_this)->window = 0;
#ifdef VAR_RANGES
		logval("Node:window", ((int)((P2 *)_this)->window));
#endif
		;
		/* merge: busy = (busy-1)(154, 145, 154) */
		reached[2][145] = 1;
		(trpt+1)->bup.ovals[6] = ((int)now.busy);
		now.busy = (((int)now.busy)-1);
#ifdef VAR_RANGES
		logval("busy", ((int)now.busy));
#endif
		;
		/* merge: .(goto)(0, 150, 154) */
		reached[2][150] = 1;
		;
		/* merge: .(goto)(0, 155, 154) */
		reached[2][155] = 1;
		;
		_m = 3; goto P999; /* 8 */
	case 66: // STATE 151 - ring.pml:369 - [is_dead[me] = 1] (0:157:1 - 1)
		IfNotBlocked
		reached[2][151] = 1;
		(trpt+1)->bup.oval = ((int)now.is_dead[ Index(((int)((P2 *)_this)->me), 3) ]);
		now.is_dead[ Index(((P2 *)_this)->me, 3) ] = 1;
#ifdef VAR_RANGES
		logval("is_dead[Node:me]", ((int)now.is_dead[ Index(((int)((P2 *)_this)->me), 3) ]));
#endif
		;
		/* merge: goto :b3(157, 152, 157) */
		reached[2][152] = 1;
		;
		_m = 3; goto P999; /* 1 */
	case 67: // STATE 157 - ring.pml:371 - [-end-] (0:0:0 - 2)
		IfNotBlocked
		reached[2][157] = 1;
		if (!delproc(1, II)) continue;
		_m = 3; goto P999; /* 0 */

		 /* PROC Coordinator */
	case 68: // STATE 1 - ring.pml:160 - [((window<2))] (10:0:1 - 1)
		IfNotBlocked
		reached[1][1] = 1;
		if (!((((int)((P1 *)_this)->window)<2)))
			continue;
		/* merge: window = (window+1)(0, 2, 10) */
		reached[1][2] = 1;
		(trpt+1)->bup.oval = ((int)((P1 *)_this)->window);
		((P1 *)_this)->window = (((int)((P1 *)_this)->window)+1);
#ifdef VAR_RANGES
		logval("Coordinator:window", ((int)((P1 *)_this)->window));
#endif
		;
		_m = 3; goto P999; /* 1 */
	case 69: // STATE 3 - ring.pml:163 - [name = 0] (0:0:1 - 1)
		IfNotBlocked
		reached[1][3] = 1;
		(trpt+1)->bup.oval = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = 0;
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		_m = 3; goto P999; /* 0 */
	case 70: // STATE 4 - ring.pml:165 - [((name<(2-1)))] (7:0:1 - 1)
		IfNotBlocked
		reached[1][4] = 1;
		if (!((((int)((P1 *)_this)->name)<(2-1))))
			continue;
		/* merge: name = (name+1)(0, 5, 7) */
		reached[1][5] = 1;
		(trpt+1)->bup.oval = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = (((int)((P1 *)_this)->name)+1);
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		/* merge: .(goto)(0, 8, 7) */
		reached[1][8] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 71: // STATE 11 - ring.pml:172 - [(!(is_published[window]))] (0:0:0 - 1)
		IfNotBlocked
		reached[1][11] = 1;
		if (!( !(((int)now.is_published[ Index(((int)((P1 *)_this)->window), 3) ]))))
			continue;
		_m = 3; goto P999; /* 0 */
	case 72: // STATE 12 - ring.pml:143 - [ring_epoch = (ring_epoch+1)] (0:23:3 - 1)
		IfNotBlocked
		reached[1][12] = 1;
		(trpt+1)->bup.ovals = grab_ints(3);
		(trpt+1)->bup.ovals[0] = ((int)now.ring_epoch);
		now.ring_epoch = (((int)now.ring_epoch)+1);
#ifdef VAR_RANGES
		logval("ring_epoch", ((int)now.ring_epoch));
#endif
		;
		/* merge: is_published[window] = 1(23, 13, 23) */
		reached[1][13] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.is_published[ Index(((int)((P1 *)_this)->window), 3) ]);
		now.is_published[ Index(((P1 *)_this)->window, 3) ] = 1;
#ifdef VAR_RANGES
		logval("is_published[Coordinator:window]", ((int)now.is_published[ Index(((int)((P1 *)_this)->window), 3) ]));
#endif
		;
		/* merge: publications[window] = (publications[window]+1)(23, 14, 23) */
		reached[1][14] = 1;
		(trpt+1)->bup.ovals[2] = ((int)publications[ Index(((int)((P1 *)_this)->window), 3) ]);
		publications[ Index(((P1 *)_this)->window, 3) ] = (((int)publications[ Index(((int)((P1 *)_this)->window), 3) ])+1);
#ifdef VAR_RANGES
		logval("publications[Coordinator:window]", ((int)publications[ Index(((int)((P1 *)_this)->window), 3) ]));
#endif
		;
		_m = 3; goto P999; /* 2 */
	case 73: // STATE 15 - ring.pml:147 - [((owner==current[name]))] (33:0:4 - 1)
		IfNotBlocked
		reached[1][15] = 1;
		if (!((((int)now.owner)==((int)now.current[ Index(((int)((P1 *)_this)->name), 2) ]))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: name */  (trpt+1)->bup.ovals = grab_ints(4);
		(trpt+1)->bup.ovals[0] = ((P1 *)_this)->name;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P1 *)_this)->name = 0;
		/* merge: next_owner = 255(33, 16, 33) */
		reached[1][16] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.next_owner);
		now.next_owner = 255;
#ifdef VAR_RANGES
		logval("next_owner", ((int)now.next_owner));
#endif
		;
		/* merge: next_from = 0(33, 17, 33) */
		reached[1][17] = 1;
		(trpt+1)->bup.ovals[2] = ((int)now.next_from);
		now.next_from = 0;
#ifdef VAR_RANGES
		logval("next_from", ((int)now.next_from));
#endif
		;
		/* merge: .(goto)(33, 24, 33) */
		reached[1][24] = 1;
		;
		/* merge: .(goto)(33, 29, 33) */
		reached[1][29] = 1;
		;
		/* merge: name = 0(33, 30, 33) */
		reached[1][30] = 1;
		(trpt+1)->bup.ovals[3] = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = 0;
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		/* merge: .(goto)(0, 34, 33) */
		reached[1][34] = 1;
		;
		_m = 3; goto P999; /* 6 */
	case 74: // STATE 18 - ring.pml:148 - [((((owner!=current[name])&&(next_owner==current[name]))&&(next_from<=window)))] (0:0:1 - 1)
		IfNotBlocked
		reached[1][18] = 1;
		if (!((((((int)now.owner)!=((int)now.current[ Index(((int)((P1 *)_this)->name), 2) ]))&&(((int)now.next_owner)==((int)now.current[ Index(((int)((P1 *)_this)->name), 2) ])))&&(((int)now.next_from)<=((int)((P1 *)_this)->window)))))
			continue;
		if (TstOnly) return 1; /* TT */
		/* dead 1: name */  (trpt+1)->bup.oval = ((P1 *)_this)->name;
#ifdef HAS_CODE
		if (!readtrail)
#endif
			((P1 *)_this)->name = 0;
		_m = 3; goto P999; /* 0 */
	case 75: // STATE 19 - ring.pml:148 - [(1)] (33:0:1 - 1)
		IfNotBlocked
		reached[1][19] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(33, 24, 33) */
		reached[1][24] = 1;
		;
		/* merge: .(goto)(33, 29, 33) */
		reached[1][29] = 1;
		;
		/* merge: name = 0(33, 30, 33) */
		reached[1][30] = 1;
		(trpt+1)->bup.oval = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = 0;
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		/* merge: .(goto)(0, 34, 33) */
		reached[1][34] = 1;
		;
		_m = 3; goto P999; /* 4 */
	case 76: // STATE 21 - ring.pml:149 - [next_owner = current[name]] (0:33:3 - 1)
		IfNotBlocked
		reached[1][21] = 1;
		(trpt+1)->bup.ovals = grab_ints(3);
		(trpt+1)->bup.ovals[0] = ((int)now.next_owner);
		now.next_owner = ((int)now.current[ Index(((int)((P1 *)_this)->name), 2) ]);
#ifdef VAR_RANGES
		logval("next_owner", ((int)now.next_owner));
#endif
		;
		/* merge: next_from = window(33, 22, 33) */
		reached[1][22] = 1;
		(trpt+1)->bup.ovals[1] = ((int)now.next_from);
		now.next_from = ((int)((P1 *)_this)->window);
#ifdef VAR_RANGES
		logval("next_from", ((int)now.next_from));
#endif
		;
		/* merge: .(goto)(33, 24, 33) */
		reached[1][24] = 1;
		;
		/* merge: .(goto)(33, 29, 33) */
		reached[1][29] = 1;
		;
		/* merge: name = 0(33, 30, 33) */
		reached[1][30] = 1;
		(trpt+1)->bup.ovals[2] = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = 0;
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		/* merge: .(goto)(0, 34, 33) */
		reached[1][34] = 1;
		;
		_m = 3; goto P999; /* 5 */
	case 77: // STATE 29 - ring.pml:175 - [.(goto)] (0:33:1 - 5)
		IfNotBlocked
		reached[1][29] = 1;
		;
		/* merge: name = 0(33, 30, 33) */
		reached[1][30] = 1;
		(trpt+1)->bup.oval = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = 0;
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		/* merge: .(goto)(0, 34, 33) */
		reached[1][34] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 78: // STATE 27 - ring.pml:173 - [(1)] (33:0:1 - 1)
		IfNotBlocked
		reached[1][27] = 1;
		if (!(1))
			continue;
		/* merge: .(goto)(33, 29, 33) */
		reached[1][29] = 1;
		;
		/* merge: name = 0(33, 30, 33) */
		reached[1][30] = 1;
		(trpt+1)->bup.oval = ((int)((P1 *)_this)->name);
		((P1 *)_this)->name = 0;
#ifdef VAR_RANGES
		logval("Coordinator:name", ((int)((P1 *)_this)->name));
#endif
		;
		/* merge: .(goto)(0, 34, 33) */
		reached[1][34] = 1;
		;
		_m = 3; goto P999; /* 3 */
	case 79: // STATE 36 - ring.pml:189 - [-end-] (0:0:0 - 2)
		IfNotBlocked
		reached[1][36] = 1;
		if (!delproc(1, II)) continue;
		_m = 3; goto P999; /* 0 */

		 /* PROC Clock */
	case 80: // STATE 1 - ring.pml:133 - [(((open_window<2)&&(1||(busy==0))))] (6:0:1 - 1)
		IfNotBlocked
		reached[0][1] = 1;
		if (!(((((int)now.open_window)<2)&&(1||(((int)now.busy)==0)))))
			continue;
		/* merge: open_window = (open_window+1)(0, 2, 6) */
		reached[0][2] = 1;
		(trpt+1)->bup.oval = ((int)now.open_window);
		now.open_window = (((int)now.open_window)+1);
#ifdef VAR_RANGES
		logval("open_window", ((int)now.open_window));
#endif
		;
		/* merge: .(goto)(0, 7, 6) */
		reached[0][7] = 1;
		;
		_m = 3; goto P999; /* 2 */
	case 81: // STATE 4 - ring.pml:134 - [((open_window==2))] (0:0:0 - 1)
		IfNotBlocked
		reached[0][4] = 1;
		if (!((((int)now.open_window)==2)))
			continue;
		_m = 3; goto P999; /* 0 */
	case 82: // STATE 9 - ring.pml:136 - [-end-] (0:0:0 - 3)
		IfNotBlocked
		reached[0][9] = 1;
		if (!delproc(1, II)) continue;
		_m = 3; goto P999; /* 0 */
	case  _T5:	/* np_ */
		if (!((!(trpt->o_pm&4) && !(trpt->tau&128))))
			continue;
		/* else fall through */
	case  _T2:	/* true */
		_m = 3; goto P999;
#undef rand
	}

