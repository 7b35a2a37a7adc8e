#ifdef PEG
struct T_SRC {
	char *fl; int ln;
} T_SRC[NTRANS];

void
tr_2_src(int m, char *file, int ln)
{	T_SRC[m].fl = file;
	T_SRC[m].ln = ln;
}

void
putpeg(int n, int m)
{	printf("%5d	trans %4d ", m, n);
	printf("%s:%d\n",
		T_SRC[n].fl, T_SRC[n].ln);
}
#endif

void
settable(void)
{	Trans *T;
	Trans *settr(int, int, int, int, int, char *, int, int, int);

	trans = (Trans ***) emalloc(5*sizeof(Trans **));

	/* proctype 3: :init: */

	trans[3] = (Trans **) emalloc(31*sizeof(Trans *));

	T = trans[ 3][29] = settr(230,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(230,2,6,0,0,"ATOMIC", 1, 2, 0);
	trans[3][7]	= settr(208,2,6,1,0,".(goto)", 1, 2, 0);
	T = trans[3][6] = settr(207,2,0,0,0,"DO", 1, 2, 0);
	T = T->nxt	= settr(207,2,1,0,0,"DO", 1, 2, 0);
	    T->nxt	= settr(207,2,4,0,0,"DO", 1, 2, 0);
	trans[3][1]	= settr(202,2,6,3,3,"((i<2))", 1, 2, 0); /* m: 2 -> 6,0 */
	reached3[2] = 1;
	trans[3][2]	= settr(0,0,0,0,0,"current[i] = i",0,0,0);
	trans[3][3]	= settr(0,0,0,0,0,"i = (i+1)",0,0,0);
	trans[3][4]	= settr(205,2,9,2,0,"else", 1, 2, 0);
	trans[3][5]	= settr(206,2,9,1,0,"goto :b6", 1, 2, 0); /* m: 9 -> 0,15 */
	reached3[9] = 1;
	trans[3][8]	= settr(209,2,9,1,0,"break", 1, 2, 0);
	trans[3][9]	= settr(210,2,15,4,4,"i = 0", 1, 2, 0);
	trans[3][16]	= settr(217,2,15,1,0,".(goto)", 1, 2, 0);
	T = trans[3][15] = settr(216,2,0,0,0,"DO", 1, 2, 0);
	T = T->nxt	= settr(216,2,10,0,0,"DO", 1, 2, 0);
	    T->nxt	= settr(216,2,13,0,0,"DO", 1, 2, 0);
	trans[3][10]	= settr(211,2,11,5,0,"((i<(2+1)))", 1, 2, 0);
	trans[3][11]	= settr(212,2,12,6,6,"(run Node(i))", 1, 2, 0);
	trans[3][12]	= settr(213,2,15,7,7,"i = (i+1)", 1, 2, 0);
	trans[3][13]	= settr(214,2,18,2,0,"else", 1, 2, 0);
	trans[3][14]	= settr(215,2,18,1,0,"goto :b7", 1, 2, 0); /* m: 18 -> 0,24 */
	reached3[18] = 1;
	trans[3][17]	= settr(218,2,18,1,0,"break", 1, 2, 0);
	trans[3][18]	= settr(219,2,24,8,8,"i = 0", 1, 2, 0);
	trans[3][25]	= settr(226,2,24,1,0,".(goto)", 1, 2, 0);
	T = trans[3][24] = settr(225,2,0,0,0,"DO", 1, 2, 0);
	T = T->nxt	= settr(225,2,19,0,0,"DO", 1, 2, 0);
	    T->nxt	= settr(225,2,22,0,0,"DO", 1, 2, 0);
	trans[3][19]	= settr(220,2,20,9,0,"((i<2))", 1, 2, 0);
	trans[3][20]	= settr(221,2,21,10,10,"(run Coordinator())", 1, 2, 0);
	trans[3][21]	= settr(222,2,24,11,11,"i = (i+1)", 1, 2, 0);
	trans[3][22]	= settr(223,2,27,2,0,"else", 1, 2, 0);
	trans[3][23]	= settr(224,2,27,1,0,"goto :b8", 1, 2, 0); /* m: 27 -> 0,28 */
	reached3[27] = 1;
	trans[3][26]	= settr(227,2,27,1,0,"break", 1, 2, 0);
	trans[3][27]	= settr(228,2,28,12,12,"i = 0", 1, 2, 0);
	trans[3][28]	= settr(229,0,30,13,13,"(run Clock())", 1, 2, 0);
	trans[3][30]	= settr(231,0,0,14,14,"-end-", 0, 3500, 0);

	/* proctype 2: Node */

	trans[2] = (Trans **) emalloc(158*sizeof(Trans *));

	T = trans[2][15] = settr(59,0,0,0,0,"IF", 0, 2, 0);
	T = T->nxt	= settr(59,0,1,0,0,"IF", 0, 2, 0);
	    T->nxt	= settr(59,0,13,0,0,"IF", 0, 2, 0);
	trans[2][1]	= settr(45,0,12,15,0,"((me>=2))", 0, 2, 0);
	T = trans[ 2][12] = settr(56,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(56,2,2,0,0,"ATOMIC", 1, 2, 0);
	trans[2][2]	= settr(46,2,10,16,16,"current[(me%2)] = me", 1, 2, 0);
	T = trans[2][10] = settr(54,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(54,2,3,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(54,2,5,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(54,2,8,0,0,"IF", 1, 2, 0);
	trans[2][3]	= settr(47,0,154,17,17,"((next_owner==(me%2)))", 1, 2, 0); /* m: 4 -> 154,0 */
	reached2[4] = 1;
	trans[2][4]	= settr(0,0,0,0,0,"next_owner = me",0,0,0);
	trans[2][11]	= settr(55,0,154,18,18,".(goto)", 1, 2, 0);
	trans[2][5]	= settr(49,0,154,19,19,"(((owner==(me%2))&&(next_owner==255)))", 1, 2, 0); /* m: 6 -> 154,0 */
	reached2[6] = 1;
	trans[2][6]	= settr(0,0,0,0,0,"next_owner = me",0,0,0);
	trans[2][7]	= settr(0,0,0,0,0,"next_from = 0",0,0,0);
	trans[2][8]	= settr(52,2,9,2,0,"else", 1, 2, 0);
	trans[2][9]	= settr(53,0,154,20,20,"(1)", 1, 2, 0); /* m: 11 -> 154,0 */
	reached2[11] = 1;
	trans[2][16]	= settr(60,0,154,1,0,".(goto)", 0, 2, 0);
	trans[2][13]	= settr(57,0,14,2,0,"else", 0, 2, 0);
	trans[2][14]	= settr(58,0,154,1,0,"(1)", 0, 2, 0);
	trans[2][155]	= settr(199,0,154,1,0,".(goto)", 0, 2, 0);
	T = trans[2][154] = settr(198,0,0,0,0,"DO", 0, 2, 0);
	T = T->nxt	= settr(198,0,17,0,0,"DO", 0, 2, 0);
	T = T->nxt	= settr(198,0,67,0,0,"DO", 0, 2, 0);
	    T->nxt	= settr(198,0,153,0,0,"DO", 0, 2, 0);
	trans[2][17]	= settr(61,0,66,21,0,"((work_step<2))", 1, 2, 0);
	T = trans[ 2][66] = settr(110,0,0,0,0,"sub-sequence", 0, 2, 0);
	T->nxt	= settr(110,0,41,0,0,"sub-sequence", 0, 2, 0);
	T = trans[ 2][41] = settr(85,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(85,2,25,0,0,"ATOMIC", 1, 2, 0);
	T = trans[ 2][25] = settr(69,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(69,0,18,0,0,"sub-sequence", 1, 2, 0);
	trans[2][18]	= settr(62,2,22,22,22,"reading = 0", 1, 2, 0);
	trans[2][23]	= settr(67,2,22,1,0,".(goto)", 1, 2, 0);
	T = trans[2][22] = settr(66,2,0,0,0,"DO", 1, 2, 0);
	T = T->nxt	= settr(66,2,19,0,0,"DO", 1, 2, 0);
	    T->nxt	= settr(66,2,21,0,0,"DO", 1, 2, 0);
	trans[2][19]	= settr(63,2,22,23,23,"((reading<2))", 1, 2, 0); /* m: 20 -> 22,0 */
	reached2[20] = 1;
	trans[2][20]	= settr(0,0,0,0,0,"reading = (reading+1)",0,0,0);
	trans[2][21]	= settr(65,2,37,24,24,"goto :b4", 1, 2, 0); /* m: 26 -> 0,37 */
	reached2[26] = 1;
	trans[2][24]	= settr(68,2,26,1,0,"break", 1, 2, 0);
	trans[2][26]	= settr(70,2,37,25,25,"wants = 0", 1, 2, 0); /* m: 27 -> 0,37 */
	reached2[27] = 1;
	trans[2][27]	= settr(0,0,0,0,0,"sweeps = 0",0,0,0);
	T = trans[2][37] = settr(81,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(81,2,28,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(81,2,30,0,0,"IF", 1, 2, 0);
	trans[2][28]	= settr(72,4,64,26,26,"(((next_owner==me)&&(next_from<=reading)))", 1, 2, 0); /* m: 29 -> 64,0 */
	reached2[29] = 1;
	trans[2][29]	= settr(0,0,0,0,0,"wants = 1",0,0,0);
	trans[2][38]	= settr(82,2,39,1,0,".(goto)", 1, 2, 0); /* m: 39 -> 0,64 */
	reached2[39] = 1;
	trans[2][30]	= settr(74,2,35,2,0,"else", 1, 2, 0);
	T = trans[2][35] = settr(79,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(79,2,31,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(79,2,34,0,0,"IF", 1, 2, 0);
	trans[2][31]	= settr(75,4,64,27,27,"((((2&&(owner!=me))&&(current[(me%2)]==me))&&(((2==2)||(owner==255))||is_dead[owner])))", 1, 2, 0); /* m: 32 -> 64,0 */
	reached2[32] = 1;
	trans[2][32]	= settr(0,0,0,0,0,"wants = 1",0,0,0);
	trans[2][33]	= settr(0,0,0,0,0,"sweeps = 1",0,0,0);
	trans[2][36]	= settr(80,2,39,1,0,".(goto)", 1, 2, 0); /* m: 39 -> 0,64 */
	reached2[39] = 1;
	trans[2][34]	= settr(78,4,64,28,28,"(1)", 1, 2, 0); /* m: 39 -> 64,0 */
	reached2[39] = 1;
	trans[2][39]	= settr(83,4,64,29,29,"seen = slot_epoch", 1, 2, 0); /* m: 40 -> 0,64 */
	reached2[40] = 1;
	trans[2][40]	= settr(0,0,0,0,0,"reading = 0",0,0,0);
	T = trans[2][64] = settr(108,0,0,0,0,"IF", 0, 2, 0);
	T = T->nxt	= settr(108,0,42,0,0,"IF", 0, 2, 0);
	    T->nxt	= settr(108,0,62,0,0,"IF", 0, 2, 0);
	trans[2][42]	= settr(86,0,61,30,30,"(wants)", 0, 2, 0);
	T = trans[ 2][61] = settr(105,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(105,2,56,0,0,"ATOMIC", 1, 2, 0);
	T = trans[2][56] = settr(100,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(100,2,43,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(100,2,54,0,0,"IF", 1, 2, 0);
	trans[2][43]	= settr(87,2,52,31,31,"(((!(1)||(sharers==0))&&(!(1)||(slot_epoch==seen))))", 1, 2, 0); /* m: 44 -> 52,0 */
	reached2[44] = 1;
	trans[2][44]	= settr(0,0,0,0,0,"ring_epoch = (ring_epoch+1)",0,0,0);
	trans[2][45]	= settr(0,0,0,0,0,"owner = me",0,0,0);
	trans[2][46]	= settr(0,0,0,0,0,"slot_epoch = ring_epoch",0,0,0);
	T = trans[2][52] = settr(96,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(96,2,47,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(96,2,50,0,0,"IF", 1, 2, 0);
	trans[2][47]	= settr(91,0,154,32,32,"((next_owner==me))", 1, 2, 0); /* m: 48 -> 154,0 */
	reached2[48] = 1;
	trans[2][48]	= settr(0,0,0,0,0,"next_owner = 255",0,0,0);
	trans[2][49]	= settr(0,0,0,0,0,"next_from = 0",0,0,0);
	trans[2][53]	= settr(97,2,58,1,0,".(goto)", 1, 2, 0); /* m: 58 -> 0,154 */
	reached2[58] = 1;
	trans[2][50]	= settr(94,2,51,2,0,"else", 1, 2, 0);
	trans[2][51]	= settr(95,0,154,33,33,"(1)", 1, 2, 0); /* m: 58 -> 154,0 */
	reached2[58] = 1;
	trans[2][57]	= settr(101,2,58,1,0,".(goto)", 1, 2, 0); /* m: 58 -> 0,154 */
	reached2[58] = 1;
	trans[2][54]	= settr(98,2,55,2,0,"else", 1, 2, 0);
	trans[2][55]	= settr(99,0,154,34,34,"(1)", 1, 2, 0); /* m: 58 -> 154,0 */
	reached2[58] = 1;
	trans[2][58]	= settr(102,0,154,35,35,"wants = 0", 1, 2, 0); /* m: 59 -> 0,154 */
	reached2[59] = 1;
	trans[2][59]	= settr(0,0,0,0,0,"sweeps = 0",0,0,0);
	trans[2][60]	= settr(0,0,0,0,0,"seen = 0",0,0,0);
	trans[2][65]	= settr(109,0,154,1,0,".(goto)", 0, 2, 0);
	trans[2][62]	= settr(106,0,63,2,0,"else", 0, 2, 0);
	trans[2][63]	= settr(107,0,154,1,0,"(1)", 0, 2, 0);
	trans[2][67]	= settr(111,0,87,36,0,"((work_step<2))", 1, 2, 0);
	T = trans[ 2][87] = settr(131,0,0,0,0,"sub-sequence", 0, 2, 0);
	T->nxt	= settr(131,0,86,0,0,"sub-sequence", 0, 2, 0);
	T = trans[ 2][86] = settr(130,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(130,2,84,0,0,"ATOMIC", 1, 2, 0);
	T = trans[2][84] = settr(128,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(128,2,68,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(128,2,82,0,0,"IF", 1, 2, 0);
	trans[2][68]	= settr(112,2,79,37,37,"(((owner==me)&&(work_step<2)))", 1, 2, 0); /* m: 69 -> 79,0 */
	reached2[69] = 1;
	trans[2][69]	= settr(0,0,0,0,0,"step = work_step",0,0,0);
	trans[2][70]	= settr(0,0,0,0,0,"attempt = work_attempt",0,0,0);
	trans[2][71]	= settr(0,0,0,0,0,"epoch = slot_epoch",0,0,0);
	T = trans[ 2][79] = settr(123,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(123,0,72,0,0,"sub-sequence", 1, 2, 0);
	trans[2][72]	= settr(116,2,76,38,38,"window = 0", 1, 2, 0);
	trans[2][77]	= settr(121,2,76,1,0,".(goto)", 1, 2, 0);
	T = trans[2][76] = settr(120,2,0,0,0,"DO", 1, 2, 0);
	T = T->nxt	= settr(120,2,73,0,0,"DO", 1, 2, 0);
	    T->nxt	= settr(120,2,75,0,0,"DO", 1, 2, 0);
	trans[2][73]	= settr(117,2,76,39,39,"((window<2))", 1, 2, 0); /* m: 74 -> 76,0 */
	reached2[74] = 1;
	trans[2][74]	= settr(0,0,0,0,0,"window = (window+1)",0,0,0);
	trans[2][75]	= settr(119,4,149,40,40,"goto :b5", 1, 2, 0); /* m: 80 -> 0,149 */
	reached2[80] = 1;
	trans[2][78]	= settr(122,2,80,1,0,"break", 1, 2, 0);
	trans[2][80]	= settr(124,4,149,41,41,"found = 1", 1, 2, 0); /* m: 81 -> 0,149 */
	reached2[81] = 1;
	trans[2][81]	= settr(0,0,0,0,0,"busy = (busy+1)",0,0,0);
	trans[2][85]	= settr(129,0,149,42,42,".(goto)", 1, 2, 0);
	trans[2][82]	= settr(126,2,83,2,0,"else", 1, 2, 0);
	trans[2][83]	= settr(127,4,149,43,43,"(1)", 1, 2, 0); /* m: 85 -> 149,0 */
	reached2[85] = 1;
	T = trans[2][149] = settr(193,0,0,0,0,"IF", 0, 2, 0);
	T = T->nxt	= settr(193,0,88,0,0,"IF", 0, 2, 0);
	    T->nxt	= settr(193,0,147,0,0,"IF", 0, 2, 0);
	trans[2][88]	= settr(132,0,98,44,44,"(found)", 0, 2, 0);
	T = trans[ 2][98] = settr(142,0,0,0,0,"sub-sequence", 0, 2, 0);
	T->nxt	= settr(142,0,97,0,0,"sub-sequence", 0, 2, 0);
	T = trans[ 2][97] = settr(141,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(141,2,89,0,0,"ATOMIC", 1, 2, 0);
	trans[2][89]	= settr(133,2,95,45,45,"passed = (owner==me)", 1, 2, 0); /* m: 90 -> 0,95 */
	reached2[90] = 1;
	trans[2][90]	= settr(0,0,0,0,0,"epoch = slot_epoch",0,0,0);
	T = trans[2][95] = settr(139,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(139,2,91,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(139,2,93,0,0,"IF", 1, 2, 0);
	trans[2][91]	= settr(135,4,110,46,46,"(passed)", 1, 2, 0); /* m: 92 -> 110,0 */
	reached2[92] = 1;
	trans[2][92]	= settr(0,0,0,0,0,"sharers = (sharers+1)",0,0,0);
	trans[2][96]	= settr(140,0,110,47,47,".(goto)", 1, 2, 0);
	trans[2][93]	= settr(137,2,94,2,0,"else", 1, 2, 0);
	trans[2][94]	= settr(138,4,110,48,48,"(1)", 1, 2, 0); /* m: 96 -> 110,0 */
	reached2[96] = 1;
	T = trans[ 2][110] = settr(154,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(154,2,108,0,0,"ATOMIC", 1, 2, 0);
	T = trans[2][108] = settr(152,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(152,2,99,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(152,2,102,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(152,2,106,0,0,"IF", 1, 2, 0);
	trans[2][99]	= settr(143,4,146,49,49,"((passed&&(work_step<2)))", 1, 2, 0); /* m: 100 -> 146,0 */
	reached2[100] = 1;
	trans[2][100]	= settr(0,0,0,0,0,"step = work_step",0,0,0);
	trans[2][101]	= settr(0,0,0,0,0,"attempt = work_attempt",0,0,0);
	trans[2][109]	= settr(153,0,146,50,50,".(goto)", 1, 2, 0);
	trans[2][102]	= settr(146,2,105,51,51,"((passed&&(work_step==2)))", 1, 2, 0); /* m: 103 -> 105,0 */
	reached2[103] = 1;
	trans[2][103]	= settr(0,0,0,0,0,"passed = 0",0,0,0);
	T = trans[ 2][105] = settr(149,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(149,0,104,0,0,"sub-sequence", 1, 2, 0);
	trans[2][104]	= settr(148,4,146,52,52,"sharers = (sharers-1)", 1, 2, 0); /* m: 109 -> 0,146 */
	reached2[109] = 1;
	trans[2][106]	= settr(150,2,107,2,0,"else", 1, 2, 0);
	trans[2][107]	= settr(151,4,146,53,53,"(1)", 1, 2, 0); /* m: 109 -> 146,0 */
	reached2[109] = 1;
	T = trans[ 2][146] = settr(190,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(190,2,137,0,0,"ATOMIC", 1, 2, 0);
	T = trans[2][137] = settr(181,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(181,2,111,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(181,2,132,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(181,2,135,0,0,"IF", 1, 2, 0);
	trans[2][111]	= settr(155,2,129,54,54,"(passed)", 1, 2, 0);
	T = trans[ 2][129] = settr(173,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(173,0,127,0,0,"sub-sequence", 1, 2, 0);
	T = trans[2][127] = settr(171,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(171,2,112,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(171,2,114,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(171,2,116,0,0,"IF", 1, 2, 0);
	trans[2][112]	= settr(156,2,113,55,55,"(has_marker[(step*2)])", 1, 2, 0);
	trans[2][113]	= settr(157,2,131,1,0,"(1)", 1, 2, 0);
	trans[2][128]	= settr(172,2,131,1,0,".(goto)", 1, 2, 0);
	trans[2][114]	= settr(158,2,115,56,56,"(((work_step!=step)||(work_attempt!=attempt)))", 1, 2, 0);
	trans[2][115]	= settr(159,2,131,1,0,"(1)", 1, 2, 0);
	trans[2][116]	= settr(160,2,117,2,0,"else", 1, 2, 0);
	trans[2][117]	= settr(161,2,125,57,57,"latest_epoch = ( ((epoch>latest_epoch)) -> (epoch) : (latest_epoch) )", 1, 2, 0);
	T = trans[2][125] = settr(169,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(169,2,118,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(169,2,122,0,0,"IF", 1, 2, 0);
	trans[2][118]	= settr(162,2,131,58,58,"successes[step] = (successes[step]+1)", 1, 2, 0); /* m: 119 -> 0,131 */
	reached2[119] = 1;
	trans[2][119]	= settr(0,0,0,0,0,"has_marker[(step*2)] = 1",0,0,0);
	trans[2][120]	= settr(0,0,0,0,0,"work_step = (step+1)",0,0,0);
	trans[2][121]	= settr(0,0,0,0,0,"work_attempt = 0",0,0,0);
	trans[2][126]	= settr(170,2,131,1,0,".(goto)", 1, 2, 0);
	trans[2][122]	= settr(166,2,131,59,59,"((attempt<(2-1)))", 1, 2, 0); /* m: 123 -> 131,0 */
	reached2[123] = 1;
	trans[2][123]	= settr(0,0,0,0,0,"work_step = step",0,0,0);
	trans[2][124]	= settr(0,0,0,0,0,"work_attempt = (attempt+1)",0,0,0);
	T = trans[ 2][131] = settr(175,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(175,0,130,0,0,"sub-sequence", 1, 2, 0);
	trans[2][130]	= settr(174,0,154,60,60,"sharers = (sharers-1)", 1, 2, 0); /* m: 139 -> 0,154 */
	reached2[139] = 1;
	trans[2][138]	= settr(182,2,139,1,0,".(goto)", 1, 2, 0); /* m: 139 -> 0,154 */
	reached2[139] = 1;
	trans[2][132]	= settr(176,2,134,61,61,"(passed)", 1, 2, 0);
	T = trans[ 2][134] = settr(178,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(178,0,133,0,0,"sub-sequence", 1, 2, 0);
	trans[2][133]	= settr(177,0,154,62,62,"sharers = (sharers-1)", 1, 2, 0); /* m: 139 -> 0,154 */
	reached2[139] = 1;
	trans[2][135]	= settr(179,2,136,63,63,"(!(passed))", 1, 2, 0);
	trans[2][136]	= settr(180,0,154,64,64,"(1)", 1, 2, 0); /* m: 139 -> 154,0 */
	reached2[139] = 1;
	trans[2][139]	= settr(183,0,154,65,65,"found = 0", 1, 2, 0); /* m: 140 -> 0,154 */
	reached2[140] = 1;
	trans[2][140]	= settr(0,0,0,0,0,"passed = 0",0,0,0);
	trans[2][141]	= settr(0,0,0,0,0,"step = 0",0,0,0);
	trans[2][142]	= settr(0,0,0,0,0,"attempt = 0",0,0,0);
	trans[2][143]	= settr(0,0,0,0,0,"epoch = 0",0,0,0);
	trans[2][144]	= settr(0,0,0,0,0,"window = 0",0,0,0);
	trans[2][145]	= settr(0,0,0,0,0,"busy = (busy-1)",0,0,0);
	trans[2][150]	= settr(194,0,154,1,0,".(goto)", 0, 2, 0);
	trans[2][147]	= settr(191,0,148,2,0,"else", 0, 2, 0);
	trans[2][148]	= settr(192,0,154,1,0,"(1)", 0, 2, 0);
	T = trans[ 2][153] = settr(197,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(197,2,151,0,0,"ATOMIC", 1, 2, 0);
	trans[2][151]	= settr(195,4,157,66,66,"is_dead[me] = 1", 1, 2, 0); /* m: 152 -> 0,157 */
	reached2[152] = 1;
	trans[2][152]	= settr(196,0,157,1,0,"goto :b3", 1, 2, 0);
	trans[2][156]	= settr(200,0,157,1,0,"break", 0, 2, 0);
	trans[2][157]	= settr(201,0,0,67,67,"-end-", 0, 3500, 0);

	/* proctype 1: Coordinator */

	trans[1] = (Trans **) emalloc(37*sizeof(Trans *));

	trans[1][34]	= settr(42,0,33,1,0,".(goto)", 0, 2, 0);
	T = trans[1][33] = settr(41,0,0,0,0,"DO", 0, 2, 0);
	T = T->nxt	= settr(41,0,1,0,0,"DO", 0, 2, 0);
	    T->nxt	= settr(41,0,32,0,0,"DO", 0, 2, 0);
	trans[1][1]	= settr(9,0,10,68,68,"((window<2))", 0, 2, 0); /* m: 2 -> 10,0 */
	reached1[2] = 1;
	trans[1][2]	= settr(0,0,0,0,0,"window = (window+1)",0,0,0);
	T = trans[ 1][10] = settr(18,2,0,0,0,"ATOMIC", 0, 2, 0);
	T->nxt	= settr(18,2,3,0,0,"ATOMIC", 0, 2, 0);
	trans[1][3]	= settr(11,2,7,69,69,"name = 0", 0, 2, 0);
	trans[1][8]	= settr(16,2,7,1,0,".(goto)", 0, 2, 0);
	T = trans[1][7] = settr(15,2,0,0,0,"DO", 0, 2, 0);
	T = T->nxt	= settr(15,2,4,0,0,"DO", 0, 2, 0);
	    T->nxt	= settr(15,2,6,0,0,"DO", 0, 2, 0);
	trans[1][4]	= settr(12,2,7,70,70,"((name<(2-1)))", 0, 2, 0); /* m: 5 -> 7,0 */
	reached1[5] = 1;
	trans[1][5]	= settr(0,0,0,0,0,"name = (name+1)",0,0,0);
	trans[1][6]	= settr(14,2,9,1,0,"goto :b2", 0, 2, 0);
	trans[1][9]	= settr(17,0,31,1,0,"break", 0, 2, 0);
	T = trans[ 1][31] = settr(39,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(39,2,28,0,0,"ATOMIC", 1, 2, 0);
	T = trans[1][28] = settr(36,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(36,2,11,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(36,2,26,0,0,"IF", 1, 2, 0);
	trans[1][11]	= settr(19,2,25,71,0,"(!(is_published[window]))", 1, 2, 0);
	T = trans[ 1][25] = settr(33,0,0,0,0,"sub-sequence", 1, 2, 0);
	T->nxt	= settr(33,0,12,0,0,"sub-sequence", 1, 2, 0);
	trans[1][12]	= settr(20,2,23,72,72,"ring_epoch = (ring_epoch+1)", 1, 2, 0); /* m: 13 -> 0,23 */
	reached1[13] = 1;
	trans[1][13]	= settr(0,0,0,0,0,"is_published[window] = 1",0,0,0);
	trans[1][14]	= settr(0,0,0,0,0,"publications[window] = (publications[window]+1)",0,0,0);
	T = trans[1][23] = settr(31,2,0,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(31,2,15,0,0,"IF", 1, 2, 0);
	T = T->nxt	= settr(31,2,18,0,0,"IF", 1, 2, 0);
	    T->nxt	= settr(31,2,20,0,0,"IF", 1, 2, 0);
	trans[1][15]	= settr(23,0,33,73,73,"((owner==current[name]))", 1, 2, 0); /* m: 16 -> 33,0 */
	reached1[16] = 1;
	trans[1][16]	= settr(0,0,0,0,0,"next_owner = 255",0,0,0);
	trans[1][17]	= settr(0,0,0,0,0,"next_from = 0",0,0,0);
	trans[1][24]	= settr(32,2,29,1,0,".(goto)", 1, 2, 0); /* m: 29 -> 0,33 */
	reached1[29] = 1;
	trans[1][18]	= settr(26,2,19,74,74,"((((owner!=current[name])&&(next_owner==current[name]))&&(next_from<=window)))", 1, 2, 0);
	trans[1][19]	= settr(27,0,33,75,75,"(1)", 1, 2, 0); /* m: 29 -> 33,0 */
	reached1[29] = 1;
	trans[1][20]	= settr(28,2,21,2,0,"else", 1, 2, 0);
	trans[1][21]	= settr(29,0,33,76,76,"next_owner = current[name]", 1, 2, 0); /* m: 22 -> 0,33 */
	reached1[22] = 1;
	trans[1][22]	= settr(0,0,0,0,0,"next_from = window",0,0,0);
	trans[1][29]	= settr(37,0,33,77,77,".(goto)", 1, 2, 0); /* m: 30 -> 0,33 */
	reached1[30] = 1;
	trans[1][26]	= settr(34,2,27,2,0,"else", 1, 2, 0);
	trans[1][27]	= settr(35,0,33,78,78,"(1)", 1, 2, 0); /* m: 29 -> 33,0 */
	reached1[29] = 1;
	trans[1][30]	= settr(0,0,0,0,0,"name = 0",0,0,0);
	trans[1][32]	= settr(40,0,36,1,0,"goto :b1", 0, 2, 0);
	trans[1][35]	= settr(43,0,36,1,0,"break", 0, 2, 0);
	trans[1][36]	= settr(44,0,0,79,79,"-end-", 0, 3500, 0);

	/* proctype 0: Clock */

	trans[0] = (Trans **) emalloc(10*sizeof(Trans *));

	trans[0][7]	= settr(6,0,6,1,0,".(goto)", 0, 2, 0);
	T = trans[0][6] = settr(5,0,0,0,0,"DO", 0, 2, 0);
	T = T->nxt	= settr(5,0,3,0,0,"DO", 0, 2, 0);
	    T->nxt	= settr(5,0,4,0,0,"DO", 0, 2, 0);
	T = trans[ 0][3] = settr(2,2,0,0,0,"ATOMIC", 1, 2, 0);
	T->nxt	= settr(2,2,1,0,0,"ATOMIC", 1, 2, 0);
	trans[0][1]	= settr(0,0,6,80,80,"(((open_window<2)&&(1||(busy==0))))", 1, 2, 0); /* m: 2 -> 6,0 */
	reached0[2] = 1;
	trans[0][2]	= settr(0,0,0,0,0,"open_window = (open_window+1)",0,0,0);
	trans[0][4]	= settr(3,0,9,81,0,"((open_window==2))", 1, 2, 0);
	trans[0][5]	= settr(4,0,9,1,0,"goto :b0", 0, 2, 0);
	trans[0][8]	= settr(7,0,9,1,0,"break", 0, 2, 0);
	trans[0][9]	= settr(8,0,0,82,82,"-end-", 0, 3500, 0);
	/* np_ demon: */
	trans[_NP_] = (Trans **) emalloc(3*sizeof(Trans *));
	T = trans[_NP_][0] = settr(9997,0,1,_T5,0,"(np_)", 1,2,0);
	    T->nxt	  = settr(9998,0,0,_T2,0,"(1)",   0,2,0);
	T = trans[_NP_][1] = settr(9999,0,1,_T5,0,"(np_)", 1,2,0);
}

Trans *
settr(	int t_id, int a, int b, int c, int d,
	char *t, int g, int tpe0, int tpe1)
{	Trans *tmp = (Trans *) emalloc(sizeof(Trans));

	tmp->atom  = a&(6|32);	/* only (2|8|32) have meaning */
	if (!g) tmp->atom |= 8;	/* no global references */
	tmp->st    = b;
	tmp->tpe[0] = tpe0;
	tmp->tpe[1] = tpe1;
	tmp->tp    = t;
	tmp->t_id  = t_id;
	tmp->forw  = c;
	tmp->back  = d;
	return tmp;
}

Trans *
cpytr(Trans *a)
{	Trans *tmp = (Trans *) emalloc(sizeof(Trans));

	int i;
	tmp->atom  = a->atom;
	tmp->st    = a->st;
#ifdef HAS_UNLESS
	tmp->e_trans = a->e_trans;
	for (i = 0; i < HAS_UNLESS; i++)
		tmp->escp[i] = a->escp[i];
#endif
	tmp->tpe[0] = a->tpe[0];
	tmp->tpe[1] = a->tpe[1];
	for (i = 0; i < 6; i++)
	{	tmp->qu[i] = a->qu[i];
		tmp->ty[i] = a->ty[i];
	}
	tmp->tp    = (char *) emalloc(strlen(a->tp)+1);
	strcpy(tmp->tp, a->tp);
	tmp->t_id  = a->t_id;
	tmp->forw  = a->forw;
	tmp->back  = a->back;
	return tmp;
}

#ifndef NOREDUCE
int
srinc_set(int n)
{	if (n <= 2) return LOCAL;
	if (n <= 2+  DELTA) return Q_FULL_F; /* 's' or nfull  */
	if (n <= 2+2*DELTA) return Q_EMPT_F; /* 'r' or nempty */
	if (n <= 2+3*DELTA) return Q_EMPT_T; /* empty */
	if (n <= 2+4*DELTA) return Q_FULL_T; /* full  */
	if (n ==   5*DELTA) return GLOBAL;
	if (n ==   6*DELTA) return TIMEOUT_F;
	if (n ==   7*DELTA) return ALPHA_F;
	Uerror("cannot happen srinc_class");
	return BAD;
}
int
srunc(int n, int m)
{	switch(m) {
	case Q_FULL_F: return n-2;
	case Q_EMPT_F: return n-2-DELTA;
	case Q_EMPT_T: return n-2-2*DELTA;
	case Q_FULL_T: return n-2-3*DELTA;
	case ALPHA_F:
	case TIMEOUT_F: return 257; /* non-zero, and > MAXQ */
	}
	Uerror("cannot happen srunc");
	return 0;
}
#endif
int cnt;
#ifdef HAS_UNLESS
int
isthere(Trans *a, int b)
{	Trans *t;
	for (t = a; t; t = t->nxt)
		if (t->t_id == b)
			return 1;
	return 0;
}
#endif
#ifndef NOREDUCE
int
mark_safety(Trans *t) /* for conditional safety */
{	int g = 0, i, j, k;

	if (!t) return 0;
	if (t->qu[0])
		return (t->qu[1])?2:1;	/* marked */

	for (i = 0; i < 2; i++)
	{	j = srinc_set(t->tpe[i]);
		if (j >= GLOBAL && j != ALPHA_F)
			return -1;
		if (j != LOCAL)
		{	k = srunc(t->tpe[i], j);
			if (g == 0
			||  t->qu[0] != k
			||  t->ty[0] != j)
			{	t->qu[g] = k;
				t->ty[g] = j;
				g++;
	}	}	}
	return g;
}
#endif
void
retrans(int n, int m, int is, short srcln[], uchar reach[], uchar lpstate[])
	/* process n, with m states, is=initial state */
{	Trans *T0, *T1, *T2, *T3;
	Trans *T4, *T5; /* t_reverse or has_unless */
	int i;
#if defined(HAS_UNLESS) || !defined(NOREDUCE)
	int k;
#endif
#ifndef NOREDUCE
	int g, h, j, aa;
#endif
#ifdef HAS_UNLESS
	int p;
#endif
	if (state_tables >= 4)
	{	printf("STEP 1 %s\n", 
			procname[n]);
		for (i = 1; i < m; i++)
		for (T0 = trans[n][i]; T0; T0 = T0->nxt)
			crack(n, i, T0, srcln);
		return;
	}
	do {
		for (i = 1, cnt = 0; i < m; i++)
		{	T2 = trans[n][i];
			T1 = T2?T2->nxt:(Trans *)0;
/* prescan: */		for (T0 = T1; T0; T0 = T0->nxt)
/* choice in choice */	{	if (T0->st && trans[n][T0->st]
				&&  trans[n][T0->st]->nxt)
					break;
			}
#if 0
		if (T0)
		printf("\tstate %d / %d: choice in choice\n",
		i, T0->st);
#endif
			if (T0)
			for (T0 = T1; T0; T0 = T0->nxt)
			{	T3 = trans[n][T0->st];
				if (!T3->nxt)
				{	T2->nxt = cpytr(T0);
					T2 = T2->nxt;
					imed(T2, T0->st, n, i);
					continue;
				}
				do {	T3 = T3->nxt;
					T2->nxt = cpytr(T3);
					T2 = T2->nxt;
					imed(T2, T0->st, n, i);
				} while (T3->nxt);
				cnt++;
			}
		}
	} while (cnt);
	if (state_tables >= 3)
	{	printf("STEP 2 %s\n", 
			procname[n]);
		for (i = 1; i < m; i++)
		for (T0 = trans[n][i]; T0; T0 = T0->nxt)
			crack(n, i, T0, srcln);
		return;
	}
	for (i = 1; i < m; i++)
	{	if (trans[n][i] && trans[n][i]->nxt) /* optimize */
		{	T1 = trans[n][i]->nxt;
#if 0
			printf("\t\tpull %d (%d) to %d\n",
			T1->st, T1->forw, i);
#endif
			srcln[i] = srcln[T1->st];	/* Oyvind Teig, 5.2.0 */

			if (!trans[n][T1->st]) continue;
			T0 = cpytr(trans[n][T1->st]);
			trans[n][i] = T0;
			reach[T1->st] = 1;
			imed(T0, T1->st, n, i);
			for (T1 = T1->nxt; T1; T1 = T1->nxt)
			{
#if 0
			printf("\t\tpull %d (%d) to %d\n",
				T1->st, T1->forw, i);
#endif
		/*		srcln[i] = srcln[T1->st];  gh: not useful */
				if (!trans[n][T1->st]) continue;
				T0->nxt = cpytr(trans[n][T1->st]);
				T0 = T0->nxt;
				reach[T1->st] = 1;
				imed(T0, T1->st, n, i);
	}	}	}
	if (state_tables >= 2)
	{	printf("STEP 3 %s\n", 
			procname[n]);
		for (i = 1; i < m; i++)
		for (T0 = trans[n][i]; T0; T0 = T0->nxt)
			crack(n, i, T0, srcln);
		return;
	}
#ifdef HAS_UNLESS
	for (i = 1; i < m; i++)
	{	if (!trans[n][i]) continue;
		/* check for each state i if an
		 * escape to some state p is defined
		 * if so, copy and mark p's transitions
		 * and prepend them to the transition-
		 * list of state i
		 */
	 if (!like_java) /* the default */
	 {	for (T0 = trans[n][i]; T0; T0 = T0->nxt)
		for (k = HAS_UNLESS-1; k >= 0; k--)
		{	if (p = T0->escp[k])
			for (T1 = trans[n][p]; T1; T1 = T1->nxt)
			{	if (isthere(trans[n][i], T1->t_id))
					continue;
				T2 = cpytr(T1);
				T2->e_trans = p;
				T2->nxt = trans[n][i];
				trans[n][i] = T2;
		}	}
	 } else /* outermost unless checked first */
	 {	T4 = T3 = (Trans *) 0;
		for (T0 = trans[n][i]; T0; T0 = T0->nxt)
		for (k = HAS_UNLESS-1; k >= 0; k--)
		{	if (p = T0->escp[k])
			for (T1 = trans[n][p]; T1; T1 = T1->nxt)
			{	if (isthere(trans[n][i], T1->t_id))
					continue;
				T2 = cpytr(T1);
				T2->nxt = (Trans *) 0;
				T2->e_trans = p;
				if (T3)	T3->nxt = T2;
				else	T4 = T2;
				T3 = T2;
		}	}
		if (T4)
		{	T3->nxt = trans[n][i];
			trans[n][i] = T4;
		}
	 }
	}
#endif
#ifndef NOREDUCE
	for (i = 1; i < m; i++)
	{	if (a_cycles)
		{ /* moves through these states are visible */
	#if PROG_LAB>0 && defined(HAS_NP)
			if (progstate[n][i])
				goto degrade;
			for (T1 = trans[n][i]; T1; T1 = T1->nxt)
				if (progstate[n][T1->st])
					goto degrade;
	#endif
			if (accpstate[n][i] || visstate[n][i])
				goto degrade;
			for (T1 = trans[n][i]; T1; T1 = T1->nxt)
				if (accpstate[n][T1->st])
					goto degrade;
		}
		T1 = trans[n][i];
		if (!T1) continue;
		g = mark_safety(T1);	/* V3.3.1 */
		if (g < 0) goto degrade; /* global */
		/* check if mixing of guards preserves reduction */
		if (T1->nxt)
		{	k = 0;
			for (T0 = T1; T0; T0 = T0->nxt)
			{	if (!(T0->atom&8))
					goto degrade;
				for (aa = 0; aa < 2; aa++)
				{	j = srinc_set(T0->tpe[aa]);
					if (j >= GLOBAL && j != ALPHA_F)
						goto degrade;
					if (T0->tpe[aa]
					&&  T0->tpe[aa]
					!=  T1->tpe[0])
						k = 1;
			}	}
			/* g = 0;	V3.3.1 */
			if (k)	/* non-uniform selection */
			for (T0 = T1; T0; T0 = T0->nxt)
			for (aa = 0; aa < 2; aa++)
			{	j = srinc_set(T0->tpe[aa]);
				if (j != LOCAL)
				{	k = srunc(T0->tpe[aa], j);
					for (h = 0; h < 6; h++)
						if (T1->qu[h] == k
						&&  T1->ty[h] == j)
							break;
					if (h >= 6)
					{	T1->qu[g%6] = k;
						T1->ty[g%6] = j;
						g++;
			}	}	}
			if (g > 6)
			{	T1->qu[0] = 0;	/* turn it off */
				printf("pan: warning, line %d, ",
					srcln[i]);
			 	printf("too many stmnt types (%d)",
					g);
			  	printf(" in selection\n");
			  goto degrade;
			}
		}
		/* mark all options global if >=1 is global */
		for (T1 = trans[n][i]; T1; T1 = T1->nxt)
			if (!(T1->atom&8)) break;
		if (T1)
degrade:	for (T1 = trans[n][i]; T1; T1 = T1->nxt)
			T1->atom &= ~8;	/* mark as unsafe */
		/* can only mix 'r's or 's's if on same chan */
		/* and not mixed with other local operations */
		T1 = trans[n][i];
		if (!T1 || T1->qu[0]) continue;
		j = T1->tpe[0];
		if (T1->nxt && T1->atom&8)
		{ if (j == 5*DELTA)
		  {	printf("warning: line %d ", srcln[i]);
			printf("mixed condition ");
			printf("(defeats reduction)\n");
			goto degrade;
		  }
		  for (T0 = T1; T0; T0 = T0->nxt)
		  for (aa = 0; aa < 2; aa++)
		  if  (T0->tpe[aa] && T0->tpe[aa] != j)
		  {	printf("warning: line %d ", srcln[i]);
			printf("[%d-%d] mixed %stion ",
				T0->tpe[aa], j, 
				(j==5*DELTA)?"condi":"selec");
			printf("(defeats reduction)\n");
			printf("	'%s' <-> '%s'\n",
				T1->tp, T0->tp);
			goto degrade;
		} }
	}
#endif
	for (i = 1; i < m; i++)
	{	T2 = trans[n][i];
		if (!T2
		||  T2->nxt
		||  strncmp(T2->tp, ".(goto)", 7)
		||  !stopstate[n][i])
			continue;
		stopstate[n][T2->st] = 1;
	}
	if (state_tables && !verbose)
	{	if (dodot)
		{	char buf[256], *q = buf, *p = procname[n];
			while (*p != '\0')
			{	if (*p != ':')
				{	*q++ = *p;
				}
				p++;
			}
			*q = '\0';
			printf("digraph ");
			switch (Btypes[n]) {
			case I_PROC:  printf("init {\n"); break;
			case N_CLAIM: printf("claim_%s {\n", buf); break;
			case E_TRACE: printf("notrace {\n"); break;
			case N_TRACE: printf("trace {\n"); break;
			default:      printf("p_%s {\n", buf); break;
			}
			printf("size=\"8,10\";\n");
			printf("  GT [shape=box,style=dotted,label=\"%s\"];\n", buf);
			printf("  GT -> S%d;\n", is);
		} else
		{	switch (Btypes[n]) {
			case I_PROC:  printf("init\n"); break;
			case N_CLAIM: printf("claim %s\n", procname[n]); break;
			case E_TRACE: printf("notrace assertion\n"); break;
			case N_TRACE: printf("trace assertion\n"); break;
			default:      printf("proctype %s\n", procname[n]); break;
		}	}
		for (i = 1; i < m; i++)
		{	reach[i] = 1;
		}
		tagtable(n, m, is, srcln, reach);
		if (dodot) printf("}\n");
	} else
	for (i = 1; i < m; i++)
	{	int nrelse;
		if (Btypes[n] != N_CLAIM)
		{	for (T0 = trans[n][i]; T0; T0 = T0->nxt)
			{	if (T0->st == i
				&& strcmp(T0->tp, "(1)") == 0)
				{	printf("error: proctype '%s' ",
						procname[n]);
		  			printf("line %d, state %d: has un",
						srcln[i], i);
					printf("conditional self-loop\n");
					pan_exit(1);
		}	}	}
		nrelse = 0;
		for (T0 = trans[n][i]; T0; T0 = T0->nxt)
		{	if (strcmp(T0->tp, "else") == 0)
				nrelse++;
		}
		if (nrelse > 1)
		{	printf("error: proctype '%s' state",
				procname[n]);
		  	printf(" %d, inherits %d", i, nrelse);
		  	printf(" 'else' stmnts\n");
			pan_exit(1);
	}	}
#if !defined(LOOPSTATE) && !defined(BFS_PAR)
	if (state_tables)
#endif
	do_dfs(n, m, is, srcln, reach, lpstate);

	if (!t_reverse)
	{	return;
	}
	/* process n, with m states, is=initial state -- reverse list */
	if (!state_tables && Btypes[n] != N_CLAIM)
	{	for (i = 1; i < m; i++)
		{	Trans *Tx = (Trans *) 0; /* list of escapes */
			Trans *Ty = (Trans *) 0; /* its tail element */
			T1 = (Trans *) 0; /* reversed list */
			T2 = (Trans *) 0; /* its tail */
			T3 = (Trans *) 0; /* remembers possible 'else' */

			/* find unless-escapes, they should go first */
			T4 = T5 = T0 = trans[n][i];
	#ifdef HAS_UNLESS
			while (T4 && T4->e_trans) /* escapes are first in orig list */
			{	T5 = T4;	  /* remember predecessor */
				T4 = T4->nxt;
			}
	#endif
			/* T4 points to first non-escape, T5 to its parent, T0 to original list */
			if (T4 != T0)		 /* there was at least one escape */
			{	T3 = T5->nxt;		 /* start of non-escapes */
				T5->nxt = (Trans *) 0;	 /* separate */
				Tx = T0;		 /* start of the escapes */
				Ty = T5;		 /* its tail */
				T0 = T3;		 /* the rest, to be reversed */
			}
			/* T0 points to first non-escape, Tx to the list of escapes, Ty to its tail */

			/* first tail-add non-escape transitions, reversed */
			T3 = (Trans *) 0;
			for (T5 = T0; T5; T5 = T4)
			{	T4 = T5->nxt;
	#ifdef HAS_UNLESS
				if (T5->e_trans)
				{	printf("error: cannot happen!\n");
					continue;
				}
	#endif
				if (strcmp(T5->tp, "else") == 0)
				{	T3 = T5;
					T5->nxt = (Trans *) 0;
				} else
				{	T5->nxt = T1;
					if (!T1) { T2 = T5; }
					T1 = T5;
			}	}
			/* T3 points to a possible else, which is removed from the list */
			/* T1 points to the reversed list so far (without escapes) */
			/* T2 points to the tail element -- where the else should go */
			if (T2 && T3)
			{	T2->nxt = T3;	/* add else */
			} else
			{	if (T3) /* there was an else, but there's no tail */
				{	if (!T1)	/* and no reversed list */
					{	T1 = T3; /* odd, but possible */
					} else		/* even stranger */
					{	T1->nxt = T3;
			}	}	}

			/* add in the escapes, to that they appear at the front */
			if (Tx && Ty) { Ty->nxt = T1; T1 = Tx; }

			trans[n][i] = T1;
			/* reversed, with escapes first and else last */
	}	}
	if (state_tables && verbose)
	{	printf("FINAL proctype %s\n", 
			procname[n]);
		for (i = 1; i < m; i++)
		for (T0 = trans[n][i]; T0; T0 = T0->nxt)
			crack(n, i, T0, srcln);
	}
}
void
imed(Trans *T, int v, int n, int j)	/* set intermediate state */
{	progstate[n][T->st] |= progstate[n][v];
	accpstate[n][T->st] |= accpstate[n][v];
	stopstate[n][T->st] |= stopstate[n][v];
	mapstate[n][j] = T->st;
}
void
tagtable(int n, int m, int is, short srcln[], uchar reach[])
{	Trans *z;

	if (is >= m || !trans[n][is]
	||  is <= 0 || reach[is] == 0)
		return;
	reach[is] = 0;
	if (state_tables)
	for (z = trans[n][is]; z; z = z->nxt)
	{	if (dodot)
			dot_crack(n, is, z);
		else
			crack(n, is, z, srcln);
	}

	for (z = trans[n][is]; z; z = z->nxt)
	{
#ifdef HAS_UNLESS
		int i, j;
#endif
		tagtable(n, m, z->st, srcln, reach);
#ifdef HAS_UNLESS
		for (i = 0; i < HAS_UNLESS; i++)
		{	j = trans[n][is]->escp[i];
			if (!j) break;
			tagtable(n, m, j, srcln, reach);
		}
#endif
	}
}

extern Trans *t_id_lkup[];

void
dfs_table(int n, int m, int is, short srcln[], uchar reach[], uchar lpstate[])
{	Trans *z;

	if (is >= m || is <= 0 || !trans[n][is])
		return;
	if ((reach[is] & (4|8|16)) != 0)
	{	if ((reach[is] & (8|16)) == 16)	/* on stack, not yet recorded */
		{	lpstate[is] = 1;
			reach[is] |= 8; /* recorded */
			if (state_tables && verbose)
			{	printf("state %d line %d is a loopstate\n", is, srcln[is]);
		}	}
		return;
	}
	reach[is] |= (4|16);	/* visited | onstack */
	for (z = trans[n][is]; z; z = z->nxt)
	{	t_id_lkup[z->t_id] = z;
#ifdef HAS_UNLESS
		int i, j;
#endif
		dfs_table(n, m, z->st, srcln, reach, lpstate);
#ifdef HAS_UNLESS
		for (i = 0; i < HAS_UNLESS; i++)
		{	j = trans[n][is]->escp[i];
			if (!j) break;
			dfs_table(n, m, j, srcln, reach, lpstate);
		}
#endif
	}
	reach[is] &= ~16; /* no longer on stack */
}
void
do_dfs(int n, int m, int is, short srcln[], uchar reach[], uchar lpstate[])
{	int i;
	dfs_table(n, m, is, srcln, reach, lpstate);
	for (i = 0; i < m; i++)
		reach[i] &= ~(4|8|16);
}
void
crack(int n, int j, Trans *z, short srcln[])
{	int i;

	if (!z) return;
	printf("	state %3d -(tr %3d)-> state %3d  ",
		j, z->forw, z->st);
	printf("[id %3d tp %3d", z->t_id, z->tpe[0]);
	if (z->tpe[1]) printf(",%d", z->tpe[1]);
#ifdef HAS_UNLESS
	if (z->e_trans)
		printf(" org %3d", z->e_trans);
	else if (state_tables >= 2)
	for (i = 0; i < HAS_UNLESS; i++)
	{	if (!z->escp[i]) break;
		printf(" esc %d", z->escp[i]);
	}
#endif
	printf("]");
	printf(" [%s%s%s%s%s] %s:%d => ",
		z->atom&6?"A":z->atom&32?"D":"-",
		accpstate[n][j]?"a" :"-",
		stopstate[n][j]?"e" : "-",
		progstate[n][j]?"p" : "-",
		z->atom & 8 ?"L":"G",
		PanSource, srcln[j]);
	for (i = 0; z->tp[i]; i++)
		if (z->tp[i] == '\n')
			printf("\\n");
		else
			putchar(z->tp[i]);
	if (verbose && z->qu[0])
	{	printf("\t[");
		for (i = 0; i < 6; i++)
			if (z->qu[i])
				printf("(%d,%d)",
				z->qu[i], z->ty[i]);
		printf("]");
	}
	printf("\n");
	fflush(stdout);
}
/* spin -a m.pml; cc -o pan pan.c; ./pan -D | dot -Tps > foo.ps; ps2pdf foo.ps */
void
dot_crack(int n, int j, Trans *z)
{	int i;

	if (!z) return;
	printf("	S%d -> S%d  [color=black", j, z->st);

	if (z->atom&6) printf(",style=dashed");
	else if (z->atom&32) printf(",style=dotted");
	else if (z->atom&8) printf(",style=solid");
	else printf(",style=bold");

	printf(",label=\"");
	for (i = 0; z->tp[i]; i++)
	{	if (z->tp[i] == '\\'
		&&  z->tp[i+1] == 'n')
		{	i++; printf(" ");
		} else
		{	putchar(z->tp[i]);
	}	}
	printf("\"];\n");
	if (accpstate[n][j]) printf("  S%d [color=red,style=bold];\n", j);
	else if (progstate[n][j]) printf("  S%d [color=green,style=bold];\n", j);
	if (stopstate[n][j]) printf("  S%d [color=blue,style=bold,shape=box];\n", j);
}

#ifdef VAR_RANGES
#define BYTESIZE	32	/* 2^8 : 2^3 = 256:8 = 32 */

typedef struct Vr_Ptr {
	char	*nm;
	uchar	vals[BYTESIZE];
	struct Vr_Ptr *nxt;
} Vr_Ptr;
Vr_Ptr *ranges = (Vr_Ptr *) 0;

void
logval(char *s, int v)
{	Vr_Ptr *tmp;

	if (v<0 || v > 255) return;
	for (tmp = ranges; tmp; tmp = tmp->nxt)
		if (!strcmp(tmp->nm, s))
			goto found;
	tmp = (Vr_Ptr *) emalloc(sizeof(Vr_Ptr));
	tmp->nxt = ranges;
	ranges = tmp;
	tmp->nm = s;
found:
	tmp->vals[(v)/8] |= 1<<((v)%8);
}

void
dumpval(uchar X[], int range)
{	int w, x, i, j = -1;

	for (w = i = 0; w < range; w++)
	for (x = 0; x < 8; x++, i++)
	{
from:		if ((X[w] & (1<<x)))
		{	printf("%d", i);
			j = i;
			goto upto;
	}	}
	return;
	for (w = 0; w < range; w++)
	for (x = 0; x < 8; x++, i++)
	{
upto:		if (!(X[w] & (1<<x)))
		{	if (i-1 == j)
				printf(", ");
			else
				printf("-%d, ", i-1);
			goto from;
	}	}
	if (j >= 0 && j != 255)
		printf("-255");
}

void
dumpranges(void)
{	Vr_Ptr *tmp;
	printf("\nValues assigned within ");
	printf("interval [0..255]:\n");
	for (tmp = ranges; tmp; tmp = tmp->nxt)
	{	printf("\t%s\t: ", tmp->nm);
		dumpval(tmp->vals, BYTESIZE);
		printf("\n");
	}
}
#endif
